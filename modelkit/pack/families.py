"""The policy rows that one family of models adds to the generic ones, and the config facts that rows ask for.

Rows stand between `policy.KEEP` and `policy.GENERIC`. They follow Ollama's per-architecture policies, whose
history has the measurements: towers and routers suffer most, and a few layers carry most of the error.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from modelkit.pack.policy import (
    EIGHT,
    EIGHT_ELSE,
    REQUESTED,
    SOURCE,
    Offer,
    Request,
    Row,
    Tensor,
    in_cadence,
    is_head,
    is_table,
    more_bits,
    sensitive,
)
from runtime.models.wrapper import text_config
from runtime.quant import Format

GEMMA4: tuple[Row, ...] = (
    Row(lambda t, _: t.ends("embed_tokens.weight"), EIGHT_ELSE, "token embedding, also the head"),
    Row(
        lambda t, r: r.promotes and r.experts == 8 and t.has(".k_proj", ".v_proj"),
        EIGHT_ELSE,
        "sensitive matrix",
    ),
    Row(
        lambda t, r: r.promotes and t.has(".v_proj", "down_proj") and in_cadence(t, r),
        EIGHT_ELSE,
        "sensitive matrix, sensitive layer",
    ),
    Row(lambda t, r: r.promotes and sensitive(t), REQUESTED, "as requested"),
)

QWEN_LINEAR: tuple[Row, ...] = (
    Row(lambda t, _: t.has(".in_proj_a.", ".in_proj_b.", ".in_proj_ba."), SOURCE, "gate of the state"),
)

NEMOTRON_H: tuple[Row, ...] = (
    Row(
        lambda t, _: t.name.startswith(("vision_model.", "mlp1.", "sound_encoder.", "sound_projection.")),
        SOURCE,
        "tower or projector",
    ),
    Row(
        lambda t, r: r.float4 and t.has(".q_proj", ".k_proj", ".v_proj", ".o_proj"),
        EIGHT_ELSE,
        "attention is rare here",
    ),
    Row(
        lambda t, r: (
            r.float4
            and t.has("mixer.out_proj", "down_proj")
            and (t.layer is None or more_bits(t.layer, r.layers))
        ),
        EIGHT_ELSE,
        "sensitive matrix, sensitive layer",
    ),
    Row(lambda t, r: r.float4 and t.has("mixer.out_proj", "down_proj"), REQUESTED, "as requested"),
)


def _laguna_cadence(tensor: Tensor, request: Request) -> bool:
    layer = tensor.layer
    return layer is not None and more_bits(layer, request.layers, cadence_end=request.layers // 2 - 4)


def _attention(tensor: Tensor) -> bool:
    return tensor.has(".q_proj.", ".k_proj.", ".v_proj.", ".o_proj.", ".g_proj.")


def _shared_down(tensor: Tensor) -> bool:
    return tensor.has(".shared_expert.") and tensor.has("down_proj")


def _dense_mlp(tensor: Tensor, request: Request) -> bool:
    return (
        tensor.has(".mlp.gate_proj.", ".mlp.up_proj.", ".mlp.down_proj.")
        and tensor.layer is not None
        and tensor.layer in request.dense
    )


def _row(when: Callable[[Tensor, Request], bool], offers: tuple[Offer, ...], reason: str) -> Row:
    """A row for the microscaling formats only; affine ones leave this family to the generic rows."""
    return Row(lambda t, r: r.format.mode != "affine" and when(t, r), offers, reason)


LAGUNA: tuple[Row, ...] = (
    _row(lambda t, _: is_table(t) or is_head(t), EIGHT, "embedding or head"),
    _row(lambda t, r: _attention(t) and not r.float4, SOURCE, "attention of a mostly-expert model"),
    _row(lambda t, _: _attention(t), REQUESTED, "as requested"),
    _row(_dense_mlp, REQUESTED, "as requested"),
    _row(
        lambda t, r: t.has(".experts.") and not r.float4 and t.has("down_proj") and _laguna_cadence(t, r),
        SOURCE,
        "sensitive matrix, sensitive layer",
    ),
    _row(lambda t, _: t.has(".experts."), REQUESTED, "as requested"),
    _row(lambda t, r: _shared_down(t) and not r.float4, SOURCE, "sensitive matrix"),
    _row(
        lambda t, r: _shared_down(t) and _laguna_cadence(t, r),
        EIGHT_ELSE,
        "sensitive matrix, sensitive layer",
    ),
    _row(lambda t, _: t.has(".shared_expert."), REQUESTED, "as requested"),
    _row(lambda _t, _r: True, SOURCE, "not a matrix this family quantizes"),
)

COHERE2_MOE: tuple[Row, ...] = (
    Row(
        lambda t, r: r.promotes and sensitive(t) and in_cadence(t, r),
        EIGHT_ELSE,
        "sensitive matrix, sensitive layer",
    ),
    Row(lambda t, r: r.promotes and sensitive(t), REQUESTED, "as requested"),
)

GLIMMER: tuple[Row, ...] = (
    Row(lambda t, _: is_table(t), EIGHT_ELSE, "token embedding"),
    Row(
        lambda t, r: r.promotes and t.has(".q_proj", ".k_proj", ".v_proj", ".o_proj"),
        EIGHT_ELSE,
        "attention",
    ),
    Row(
        lambda t, r: (
            r.promotes and (t.has("mlp.down_proj") or (t.has("attn.") and t.has("gate"))) and in_cadence(t, r)
        ),
        EIGHT_ELSE,
        "sensitive matrix, sensitive layer",
    ),
    Row(lambda t, r: r.promotes and t.has("mlp.down_proj"), REQUESTED, "as requested"),
)

DBRX: tuple[Row, ...] = (
    Row(
        lambda t, _: t.has(".experts.mlp."), SOURCE, "experts on top of each other, which mlx-lm takes apart"
    ),
)


@dataclass(frozen=True, slots=True)
class Family:
    """What is particular to a family's checkpoints.

    `experts` is MLX's name for a stack that the checkpoint calls `experts`, `matrices` its names for the
    projections where they differ. `alternate`: rows of two fused matrices come in turn, and their biases.
    `halved`: matrices that hold two, the first rows' name first. `renamed`: what else MLX calls otherwise.
    `input_first`: matrices that a checkpoint with a `c_attn` of [in, 3 * in] has the other way round.
    `prefix`: what MLX has before every name but the head's. `spare`: how names of what is left out end.
    `settled`: mlx-lm takes a checkpoint whose experts are stacked for one of its own, in which filters are
    [channels, taps, 1] and norms are stored whole, not less one.
    """

    rows: tuple[Row, ...] = ()
    experts: str = "switch_mlp"
    matrices: tuple[tuple[str, str], ...] = ()
    layers: int = 0  # when the config does not say
    alternate: bool = False
    input_first: tuple[str, ...] = ()
    prefix: str = ""
    spare: tuple[str, ...] = ()
    halved: tuple[tuple[str, tuple[str, str]], ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    settled: bool = False


# How architectures[0] or model_type starts, in lower case without underscores or dots.
FAMILIES: tuple[tuple[str, Family], ...] = (
    ("gemma4", Family(GEMMA4, experts="experts.switch_glu")),
    ("qwen35", Family(QWEN_LINEAR)),
    ("qwen3next", Family(QWEN_LINEAR, settled=True)),
    ("nemotronh", Family(NEMOTRON_H, matrices=(("up_proj", "fc1"), ("down_proj", "fc2")))),
    ("laguna", Family(LAGUNA, layers=40)),
    ("cohere2moe", Family(COHERE2_MOE)),
    ("museglimmer", Family(GLIMMER)),
    ("glimmer", Family(GLIMMER)),
    ("gptoss", Family(experts="experts", alternate=True)),
    ("llama4", Family(experts="experts")),
    (
        "gpt2",
        Family(
            input_first=(".c_attn.weight", ".c_proj.weight", ".c_fc.weight"),
            prefix="model.",
            spare=(".attn.bias", ".attn.masked_bias"),
        ),
    ),
    ("afmoe", Family(experts="experts")),  # runs through mlx-lm's class
    ("dbrx", Family(DBRX)),
    ("dots1", Family(experts="experts")),
    (
        "lfm2moe",
        Family(renamed=((".w1.", ".gate_proj."), (".w2.", ".down_proj."), (".w3.", ".up_proj."))),
    ),
    ("granitemoehybrid", Family()),
)
PLAIN = Family()
# Granite 4 without experts: MLX has an ordinary MLP where the checkpoint has the shared expert alone.
GRANITE_DENSE = Family(
    halved=((".shared_mlp.input_linear.", (".mlp.gate_proj.", ".mlp.up_proj.")),),
    renamed=((".shared_mlp.output_linear.", ".mlp.down_proj."),),
)


def find_family(config: Mapping[str, Any]) -> Family:
    """The family that a config belongs to; PLAIN when the generic rows are all there is."""
    listed = config.get("architectures")
    names = [*listed[:1]] if isinstance(listed, list) else []
    for name in (*names, config.get("model_type")):
        plain = str(name).lower().replace("_", "").replace(".", "")
        for start, family in FAMILIES:
            if plain.startswith(start):
                dense = start == "granitemoehybrid" and not _count(text_config(config), "num_local_experts")
                return GRANITE_DENSE if dense else family
    return PLAIN


def request_for(wanted: Format, config: Mapping[str, Any]) -> Request:
    """The facts rows ask about, from a Hugging Face config; nested text configs are looked into."""
    text = text_config(config)
    layers = _count(text, "num_hidden_layers") or find_family(config).layers
    experts = _count(text, "num_experts") or _count(text, "num_local_experts")
    return Request(wanted, layers, experts, _dense_layers(text))


def _count(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    return value if type(value) is int and value > 0 else 0


def _dense_layers(config: Mapping[str, Any]) -> frozenset[int]:
    kinds = config.get("mlp_layer_types")
    if isinstance(kinds, list):
        return frozenset(i for i, kind in enumerate(kinds) if kind == "dense")
    listed = config.get("mlp_only_layers")
    if isinstance(listed, list):
        return frozenset(i for i in listed if type(i) is int)
    return frozenset((0,))
