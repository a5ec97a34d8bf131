"""Compute the reference logits of tests/data/references with transformers; those of kinds that it has no
class for with mlx-lm's (see mlx_models), or their authors' (authors_models).

    python -m tests.support.make_references [--half] [ENTRY ...]

Run by hand, where torch is installed. Each entry is a tiny config of one family. The weights come from
`checkpoints.random_tensor`, so a reference is a config, the names and shapes of the tensors, and what the
network answers: some columns of the logits of one prompt, a greedy continuation, and how well the answers are
determined (see conditioning).

--half: the answers for the same weights rounded to each 16-bit type, which go to tests/data/half. They are
computed in float32 too, so what is left of an error is not the reference's.
"""

import json
import pkgutil
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from transformers.models.hy_v4 import modeling_hy_v4
from transformers.models.hy_v4_vl import modeling_hy_v4_vl
from transformers.models.minimax import modeling_minimax
from transformers.models.minimax_m2.modeling_minimax_m2 import apply_rotary_pos_emb
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from tests.support import entries as entries_package
from tests.support.checkpoints import random_state
from tests.support.conditioning import sensitivity
from tests.support.configured import configured, source_of
from tests.support.entries import SMALL
from tests.support.mlx_models import MlxConfig

DATA = Path(__file__).resolve().parents[1] / "data"
FOLDER, HALF, ENCODERS = DATA / "references", DATA / "half", DATA / "encoders"
TOKENS, COLUMNS, GREEDY = 48, 48, 64
SOURCE = 29  # tokens that an encoder reads
# Hidden states are their answers.
_WITH_POOLERS = (
    *("bert", "roberta", "camembert", "xlm-roberta", "mpnet", "gte", "jina_embeddings_v3"),
    *("ernie", "albert"),
)
_GEMMAS = ("embedding_gemma2", "embedding_gemma2_text")
OF_ENCODERS = (*_WITH_POOLERS, *_GEMMAS, "distilbert", "electra", "modernbert", "nomic_bert", "eurobert")
_BOTH_WAYS = "use_bidirectional_attention"
_BARTS = (
    *("bart", "mbart", "m2m_100", "marian", "pegasus"),
    *("blenderbot", "blenderbot-small", "plbart", "mvp"),
)
_T5 = ("t5", "mt5", "umt5", "t5gemma", "t5gemma2")
WHOLE = (*_BARTS, *_T5, *OF_ENCODERS)  # entries that say all their sizes
HALF_COLUMNS = slice(None, None, 3)  # of those above
_COMPUTED = (
    *(".slope_rate", ".query_decay", ".key_decay", ".diagonal_decay"),  # of MiniMax
    *(".layer_multipliers", ".ngram_heads_vocab_sizes", ".ngram_heads_offsets"),  # of Qwen4
)
LAST_BITS, STEADY = 2e-7, 5e-5
STORED = {"bf16": torch.bfloat16, "f16": torch.float16}


def entries() -> dict[str, tuple[str, dict[str, Any]]]:
    """entry -> (model_type, config fields), from every module of tests/support/entries."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for module in pkgutil.iter_modules(entries_package.__path__):
        found.update(import_module(f"{entries_package.__name__}.{module.name}").ENTRIES)
    return found


def main(names: list[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    ENCODERS.mkdir(parents=True, exist_ok=True)
    HALF.mkdir(parents=True, exist_ok=True)
    table, half = entries(), "--half" in names
    for name in [name for name in names if name != "--half"] or list(table):
        model_type, overrides = table[name]
        model = _reference_model(model_type, overrides)
        (_write_half if half else _write)(name, model)
        print(f"{name}: {sum(p.numel() for p in model.parameters()):,} parameters", flush=True)


def _reference_model(model_type: str, overrides: dict[str, Any]) -> Any:
    both_ways = overrides.get(_BOTH_WAYS) or overrides.get("is_causal") is False
    small = {} if model_type in WHOLE or both_ways else SMALL
    config = configured(model_type, overrides, small)
    model = _made(config)
    if model_type == "t5" and overrides.get("tie_word_embeddings") is False:
        _untie(model)
    shapes = {key: tuple(value.shape) for key, value in _own_tensors(model).items()}
    if _is_tied(model):
        shapes.pop("lm_head.weight", None)
    model.saved_shapes = shapes
    _fill(model, torch.float32)
    return _reading(model, source_ids(model.config))


def _made(config: Any) -> Any:
    """float32, of random weights. An encoder comes without a pooler."""
    if isinstance(config, MlxConfig):
        return config.made()
    kind = config.model_type
    more = {"add_pooling_layer": False} if kind in _WITH_POOLERS else {}
    way = "sdpa" if kind == "falcon" else "eager"  # its eager way adds ALiBi's bias twice
    if _is_part(config):
        made = getattr(transformers, config.architectures[0])._from_config(config, attn_implementation=way)
    else:
        made = _auto_class(config).from_config(config, attn_implementation=way, **more)
    if kind == "mpt":  # its class takes 8 for alibi_bias_max, whatever a file says
        most = config.attn_config.alibi_bias_max
        made.transformer.build_mpt_alibi_tensor = partial(build_mpt_alibi_tensor, alibi_bias_max=most)
    if kind == "minimax" and hasattr(config, "rotary_dim"):  # at which its class does not look
        _turn_part_of_heads(made)
    if kind == "hy_v4":
        _as_multimodal(made)
    if kind == "rwkv":
        _halve_outputs(made.rwkv, config.rescale_every)
    return made.float().eval()


def _halve_outputs(trunk: Any, every: int) -> None:
    """What its class does to weights once, when it is first asked; those here are filled again and again."""
    trunk._rescale_layers, trunk.layers_are_rescaled = lambda: None, True
    for place, block in enumerate(trunk.blocks if every > 0 else ()):
        for part in (block.attention.output, block.feed_forward.value):
            part.register_forward_hook(lambda _part, _given, out, by=2 ** (place // every): out / by)


def _as_multimodal(made: Any) -> None:
    """As in the multimodal Hunyuan V4, and the authors' code: neighbours turn, norms have one epsilon."""
    modeling_hy_v4.apply_rotary_pos_emb = modeling_hy_v4_vl.apply_rotary_pos_emb
    for layer in made.model.layers:
        for norm in (layer.self_attn.q_a_layernorm, layer.self_attn.kv_a_layernorm):
            norm.variance_epsilon = made.config.rms_norm_eps


def _turn_part_of_heads(made: Any) -> None:
    """As in MiniMax M2, by whose function whole heads are turned alike."""
    modeling_minimax.apply_rotary_pos_emb = apply_rotary_pos_emb
    dims, theta = made.config.rotary_dim, made.config.rope_parameters["rope_theta"]
    made.model.rotary_emb.inv_freq = 1 / theta ** (torch.arange(0, dims, 2).float() / dims)


def is_encoder(config: Any) -> bool:
    """Are hidden states its answers?"""
    both_ways = getattr(config, _BOTH_WAYS, None) is True or getattr(config, "is_causal", None) is False
    return both_ways or config.model_type in OF_ENCODERS or _is_part(config)


def _is_part(config: Any) -> bool:
    """Is it the encoder of a model that writes?"""
    return bool(config.architectures) and config.architectures[0].endswith("EncoderModel")


def folder_of(config: Any) -> Path:
    return ENCODERS if is_encoder(config) else FOLDER


def _untie(model: Any) -> None:
    """T5's class ties its head whatever the config says, but not where a file has one that differs: v1.1."""
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    tied = type(model)._tied_weights_keys
    model._tied_weights_keys = {name: own for name, own in tied.items() if name != "lm_head.weight"}


def source_ids(config: Any) -> np.ndarray | None:
    """What an encoder reads; None for a model that has none."""
    if not config.is_encoder_decoder or is_encoder(config):
        return None
    return np.random.default_rng(11).integers(3, vocab_size(config), SOURCE)


def vocab_size(config: Any) -> int:
    return config.vocab_size if config.is_encoder_decoder else config.get_text_config().vocab_size


def _reading(model: Any, source: np.ndarray | None) -> Any:
    """The model, called with the ids of its decoder alone where an encoder reads `source`. What an encoder
    for embeddings answers is called logits here, too.
    """
    if is_encoder(model.config):
        hidden = model.forward
        model.forward = lambda ids: SimpleNamespace(logits=hidden(input_ids=ids).last_hidden_state)
    if source is None:
        return model
    read, plain = torch.from_numpy(source.astype(np.int64))[None], model.forward

    def forward(ids: torch.Tensor) -> Any:
        return plain(
            input_ids=read,
            attention_mask=torch.ones_like(read),
            decoder_input_ids=ids,
            decoder_attention_mask=torch.ones_like(ids),
            use_cache=False,
        )

    model.forward = forward
    return model


def _fill(model: Any, stored: torch.dtype, seed: int = 0) -> None:
    """Give a float32 model its weights, as a file of `stored` floats would hold them."""
    seeded = random_state(model.saved_shapes, seed).items()
    state = {key: torch.from_numpy(value).to(stored).float() for key, value in seeded}
    missing, surplus = model.load_state_dict(state, strict=False)
    assert not surplus, surplus
    assert not set(missing) & set(_own_tensors(model)) - {"lm_head.weight"}, missing
    model.tie_weights()


def _is_tied(model: Any) -> bool:
    """Configs of wrappers and of their text towers may disagree; the model itself knows."""
    head = model.get_output_embeddings()
    return head is not None and head.weight is model.get_input_embeddings().weight


def _own_tensors(model: Any) -> dict[str, Any]:
    """The state without the second names of tensors that several modules share, as files are saved, and
    without what a class computes of its config and saves besides.
    """
    owners: dict[int, str] = {}
    computed = (*_COMPUTED, *(getattr(model, "_keys_to_ignore_on_save", None) or ()))
    state = {name: own for name, own in model.state_dict().items() if not name.endswith(computed)}
    for name, tensor in state.items():
        owners.setdefault(tensor.data_ptr(), name)
    return {name: tensor for name, tensor in state.items() if owners[tensor.data_ptr()] == name}


def _auto_class(config: Any) -> Any:
    """Multimodal models that are no causal models to transformers answer text alone just as well."""
    if is_encoder(config):
        return transformers.AutoModel
    if config.is_encoder_decoder:
        return transformers.AutoModelForSeq2SeqLM
    if type(config) in transformers.AutoModelForCausalLM._model_mapping:
        return transformers.AutoModelForCausalLM
    return transformers.AutoModelForImageTextToText


def _write(name: str, model: Any) -> None:
    rng = np.random.default_rng(7)
    vocab, source = vocab_size(model.config), source_ids(model.config)
    ids = rng.integers(3, vocab, TOKENS)
    writes = not is_encoder(model.config)
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)[None]).logits[0].numpy()
        greedy, margin = _greedy(model, ids[:16]) if writes else ([], [])
    columns = np.sort(rng.choice(logits.shape[1], COLUMNS, replace=False))
    folder = folder_of(model.config)
    config = {key: value for key, value in model.config.to_dict().items() if key != "transformers_version"}
    theirs = isinstance(model.config, MlxConfig)
    config["architectures"] = config["architectures"] if theirs else [type(model).__name__]
    if config["model_type"] == "t5":  # as files say it; see _untie
        config["tie_word_embeddings"] = "lm_head.weight" not in model.saved_shapes
    record = {
        "config": config,
        "tensors": model.saved_shapes,
        **source_of(model),
        "sensitivity": sensitivity(model, ids, columns, logits[:, columns], float(logits.std())),
    }
    text = json.dumps(record, indent=1, default=str)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    np.savez_compressed(
        folder / f"{name}.npz",
        ids=ids.astype(np.int32),
        columns=columns.astype(np.int32),
        logits=logits[:, columns],
        std=np.float32(logits.std()),
        greedy=np.array(greedy, np.int32),
        margin=np.array(margin, np.float32),
        **({} if source is None else {"source": source.astype(np.int32)}),
    )


@torch.no_grad()
def _write_half(name: str, model: Any) -> None:
    """Logits [48, 16] of the prompt in tests/data/references, by 16-bit type, with the likeliest id of each
    position and how far the next one is behind. The weights' seed is the first whose answers hardly move with
    the last bits of the weights (`moved`, in standard deviations): no two experts are all but equally good.
    """
    with np.load(folder_of(model.config) / f"{name}.npz") as opened:
        ids, columns = torch.from_numpy(opened["ids"].astype(np.int64)), opened["columns"][HALF_COLUMNS]
    arrays: dict[str, Any] = {"columns": columns}
    for word, stored in STORED.items():
        seed, logits, moved = next(found for found in _seeds(model, stored, ids) if found[2] < STEADY)
        best = torch.topk(logits, 2)
        arrays[f"{word}_seed"], arrays[f"{word}_moved"] = np.int32(seed), np.float32(moved)
        arrays[f"{word}_logits"] = logits[:, columns].numpy()
        arrays[f"{word}_std"] = np.float32(logits.numpy().std())
        arrays[f"{word}_best"] = best.indices[:, 0].numpy().astype(np.int16)
        arrays[f"{word}_margin"] = (best.values[:, 0] - best.values[:, 1]).numpy().astype(np.float16)
    np.savez_compressed(HALF / f"{name}.npz", **arrays)


def _seeds(model: Any, stored: torch.dtype, ids: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, float]]:
    """(seed, logits [T, V], how far they move with the weights' last bits) for one seed after another."""
    for seed in range(100):
        _fill(model, stored, seed)
        logits = model(ids[None]).logits[0]
        moved = 0.0
        for turn in range(2):
            _fill(model, stored, seed)
            noise = torch.Generator().manual_seed(turn)
            for weight in model.parameters():
                weight.mul_(1 + LAST_BITS * torch.randn(weight.shape, generator=noise))
            moved = max(moved, float((model(ids[None]).logits[0] - logits).abs().max() / logits.std()))
        yield seed, logits, moved


def _greedy(model: Any, prompt: np.ndarray) -> tuple[list[int], list[float]]:
    """GREEDY tokens without a cache: the plainest truth. margin: best minus second-best logit of each."""
    ids, margins = [int(i) for i in prompt], []
    for _ in range(GREEDY):
        best = torch.topk(model(torch.tensor([ids])).logits[0, -1], 2)
        margins.append(float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
    return ids[len(prompt) :], margins


if __name__ == "__main__":
    main(sys.argv[1:])
