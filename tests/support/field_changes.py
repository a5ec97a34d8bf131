"""Which changes of a config are worth asking transformers about: other plausible values for each field.

A change is a path of names into config.json and a value; ABSENT takes the field out. Nothing here knows what
a field means: values follow from the type of what stands there, or from lists of words that such fields take.
"""

from collections.abc import Iterator, Mapping
from typing import Any

ABSENT = "<absent>"
Path = tuple[str, ...]
Change = tuple[Path, Any]

TOWERS = ("vision_config", "audio_config", "vision_tower_config")
# Words that say nothing about numbers, or whose change is another model.
LEFT_OUT = frozenset(
    {"architectures", "model_type", "dtype", "torch_dtype", "transformers_version", "vocab_size"}
    | {"unpadded_vocab_size"}
    | {"num_hidden_layers", "n_layer", "hidden_size", "n_embd", "vision_config", "audio_config"}
    | {"num_transformer_layers", "model_dim"}
    | {"id2label", "label2id", "problem_type", "return_dict"}
    | {"output_attentions", "output_hidden_states"}
    | {"chunk_size_feed_forward", "is_encoder_decoder", "initializer_range"}
)
# Names that transformers asks every config for, to see what kind it is.
ELSEWHERE = frozenset(
    {"auto_map", "decoder", "generator", "text_config", "text_encoder", "quantization_config"}
    | {"kv_sharing_modes", "vision_aspect_ratio", "vision_feature_layer", "vision_feature_select_strategy"}
)
# Blocks that are each a model of its own; without one, transformers makes it of billions of weights.
_STACKS = (("encoder",), ("decoder",))
_ACTIVATIONS = ("relu", "gelu", "silu", "gelu_pytorch_tanh", "relu2")
_WORDS: dict[str, tuple[str, ...]] = {
    "topk_method": ("greedy", "group_limited_greedy", "noaux_tc"),
    "scoring_func": ("softmax", "sigmoid"),
    "expert_selection_fn": ("softmax", "sigmoid"),
    "position_embedding_type": ("rope", "nope"),
    "rope_type": ("default", "linear", "yarn"),
    "use_bidirectional_attention": ("all", "vision"),
    "normalization_function": ("rmsnorm", "layernorm"),
    "norm_type": ("rms_norm", "layer_norm"),
}
_YARN = {"factor": 4.0, "original_max_position_embeddings": 16}
_LLAMA3 = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALINGS: tuple[dict[str, Any], ...] = (
    {"rope_type": "linear", "factor": 3.0},
    {"type": "linear", "factor": 3.0},
    {"rope_type": "yarn", **_YARN},
    {"type": "yarn", **_YARN},
    {"rope_type": "llama3", **_LLAMA3, "original_max_position_embeddings": 16},
    {"rope_type": "yarn", "factor": 4.0},
    {"rope_type": "default", "rope_theta": 500.0},
)
_KEYED = {"full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 1000.0}}
# Fields that files carry although their class does not list them, with values that may act.
EXTRA: dict[str, tuple[Any, ...]] = {
    "is_causal": (False,),
    "use_bidirectional_attention": (True,),
    "sliding_window": (8,),
    "use_sliding_window": (True,),
    "use_cache": (False,),
    "rope_theta": (500.0,),
    "partial_rotary_factor": (0.5,),
    "rope_scaling": (*SCALINGS, _KEYED),
    "rope_parameters": (*SCALINGS, _KEYED),
    "final_logit_softcapping": (2.0,),
    "attn_logit_softcapping": (2.0,),
    "logits_scaling": (0.5,),
    "logit_scale": (0.5,),
    "head_dim": (32,),
    "hidden_act": _ACTIVATIONS,
    "query_pre_attn_scalar": (64,),
}


def changes(config: Mapping[str, Any], asked: set[str], aliases: Mapping[str, str]) -> Iterator[Change]:
    """Every change of one config. asked: names that transformers looks up, there or not. aliases: other
    names of fields, to the name in the file.
    """
    seen: set[str] = set()
    for path, value in _all(config, asked, aliases):
        key = repr((path, value))
        if key not in seen and _at(config, path) != value:
            seen.add(key)
            yield path, value


def _all(config: Mapping[str, Any], asked: set[str], aliases: Mapping[str, str]) -> Iterator[Change]:
    inner = ("text_config",) if isinstance(config.get("text_config"), Mapping) else ()
    own = config["text_config"] if inner else config
    for name, value in own.items():
        yield from _of_field((*inner, name), value)
    for name, values in EXTRA.items():
        for value in values:
            yield (*inner, name), value
    for name in sorted(asked - own.keys() - LEFT_OUT - ELSEWHERE):
        for value in (True, False, 0.5, 8):
            yield (*inner, name), value
    for other, name in aliases.items():
        if name in own:
            for _, value in _of_field((*inner, name), own[name]):
                yield (*inner, other), value
    for stack in _STACKS:
        if isinstance(config.get(*stack), Mapping):
            for name, values in EXTRA.items():
                for value in values:
                    yield (*stack, name), value
    if inner:
        tied = config.get("tie_word_embeddings")
        yield ("tie_word_embeddings",), not tied
        yield ("is_causal",), False
        yield ("rope_scaling",), SCALINGS[0]


def _of_field(path: Path, value: Any) -> Iterator[Change]:
    if path[-1] in LEFT_OUT:
        return
    for other in _others(path[-1], value):
        yield path, other
    if len(path) < 3 and path not in _STACKS:
        yield path, ABSENT
        if value is not None:
            yield path, None
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _of_field((*path, name), part)


def _others(name: str, value: Any) -> Iterator[Any]:
    """Other values of the kind that stands there."""
    if name in _WORDS:
        yield from _WORDS[name]
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value * 2, value // 2) if value else (1, 8)
    elif isinstance(value, float):
        yield from (value * 2, value / 2) if value else (0.5,)
    elif isinstance(value, str):
        yield from _ACTIVATIONS if "act" in name or "nonlinear" in name else ()
    elif isinstance(value, list):
        yield from _lists(value)
    elif value is None:
        yield from (True, False, 0.5, 8)


def _lists(value: list[Any]) -> Iterator[Any]:
    yield value[::-1]
    if value and all(isinstance(item, str) for item in value):
        yield from ([word] * len(value) for word in sorted(set(value)))
        if "attention" in value[0]:
            yield from ([word] * len(value) for word in ("full_attention", "sliding_attention"))
    elif value and all(type(item) in (int, float) for item in value):
        yield [2 * item for item in value]
        yield [value[0]] * len(value)


def _at(config: Mapping[str, Any], path: Path) -> Any:
    value: Any = config
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return ABSENT
        value = value[name]
    return value


def changed(config: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """The config with one field changed. An alias replaces the field it stands for: see `spelled`."""
    name, rest = path[0], path[1:]
    out = dict(config)
    if rest:
        inner = out.get(name)
        out[name] = changed(inner if isinstance(inner, Mapping) else {}, rest, value)
    elif value == ABSENT:
        out.pop(name, None)
    else:
        out[name] = value
    return out


def spelled(config: Mapping[str, Any], path: Path, value: Any, aliases: Mapping[str, str]) -> dict[str, Any]:
    """`changed`, and without the field for which the changed one is another name."""
    out = changed(config, path, value)
    name = aliases.get(path[-1])
    return out if name is None else changed(out, (*path[:-1], name), ABSENT)
