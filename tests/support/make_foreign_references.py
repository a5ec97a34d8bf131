"""Compute tests/data/foreign with transformers: what mlx-lm's classes must answer, and what moves the answer.

    python -m tests.support.make_foreign_references [ENTRY ...]

Run by hand, where torch is installed. An entry is a tiny config of one kind. Weights come from
`checkpoints.random_tensor` under the names that transformers gives them in a file. Stored are the answer to
the entry as it is (logits, greedy tokens, logits of the same weights rounded to bfloat16), and for every
field of its config one changed value or two: the new logits if they moved, that they did not, or that
transformers takes no such config.
"""

import copy
import json
import pkgutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file

from tests.support import foreign_entries
from tests.support.checkpoints import random_state
from tests.support.foreign_entries import LINEAR, SMALL

FOLDER = Path(__file__).resolve().parents[1] / "data" / "foreign"
TOKENS, COLUMNS, GREEDY = 48, 32, 64
SEEN = slice(5, None, 6)  # the positions that a changed config's answer is stored for
FEW = 12  # columns of those
UNMOVED = 1e-6  # of the spread

# Nothing of these enters the computation of logits: names, ids, training, what is returned.
_NAMES = """
    architectures model_type dtype transformers_version _name_or_path return_dict output_attentions
    output_hidden_states output_router_logits id2label label2id problem_type is_encoder_decoder
    chunk_size_feed_forward use_cache initializer_range embedding_initializer_range pad_token_id bos_token_id
    eos_token_id rope_parameters
"""
ASIDE = frozenset(_NAMES.split())
# Fields that transformers' shared code or other families read, whether a kind's own config names them or not.
EVERYWHERE: dict[str, dict[str, Any]] = {
    "is_causal false": {"is_causal": False},
    "use_bidirectional_attention": {"use_bidirectional_attention": True},
    "rope_scaling too": {"rope_scaling": LINEAR},
    "rope_theta too": {"rope_theta": 500.0},
    "partial_rotary_factor too": {"partial_rotary_factor": 0.25},
    "sliding_window too": {"sliding_window": 4},
    "attn_logit_softcapping": {"attn_logit_softcapping": 1.0},
    "final_logit_softcapping": {"final_logit_softcapping": 1.0},
    "logit_scale": {"logit_scale": 2.0},
    "qk_layernorm": {"qk_layernorm": True},
}


def entries() -> dict[str, tuple[str, dict[str, Any], dict[str, dict[str, Any]]]]:
    """entry -> (model_type, config fields, changes)."""
    found: dict[str, tuple[str, dict[str, Any], dict[str, dict[str, Any]]]] = {}
    for module in pkgutil.iter_modules(foreign_entries.__path__):
        file = import_module(f"{foreign_entries.__name__}.{module.name}")
        found |= {name: (*entry, file.CHANGES[name]) for name, entry in file.ENTRIES.items()}
    return found


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    FOLDER.mkdir(parents=True, exist_ok=True)
    table = entries()
    for name in names or list(table):
        model_type, overrides, changes = table[name]
        base = transformers.AutoConfig.for_model(model_type, **{**SMALL, **overrides})
        defaults = transformers.AutoConfig.for_model(model_type).to_dict()
        record, arrays = _entry(_plain(base.to_dict()), changes)
        record["defaults"] = {key: _short(value) for key, value in _plain(defaults).items()}
        text = json.dumps({"transformers": transformers.__version__, **record}, indent=None, default=str)
        (FOLDER / f"{name}.json").write_text(text.replace('}, "', '},\n"') + "\n", encoding="utf-8")
        np.savez_compressed(FOLDER / f"{name}.npz", **arrays)


def _entry(
    config: dict[str, Any], special: Mapping[str, dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    rng = np.random.default_rng(7)
    vocab = config["vocab_size"]
    ids = rng.integers(3, vocab, TOKENS)
    columns = np.sort(rng.choice(vocab, COLUMNS, replace=False))
    model, shapes = _model(config)
    config["architectures"] = [type(model).__name__]
    logits = _logits(model, ids)
    greedy, margin = _greedy(model, ids[:16])
    arrays = {
        "ids": ids.astype(np.int32),
        "columns": columns.astype(np.int32),
        "logits": logits[:, columns],
        "std": np.float32(logits.std()),
        "greedy": np.array(greedy, np.int32),
        "margin": np.array(margin, np.float32),
        "rounded": _logits(_model(config, rounded=True)[0], ids)[:, columns],
    }
    outcomes: dict[str, Any] = {}
    for name, change in {**dict(_one_by_one(config)), **EVERYWHERE, **special}.items():
        outcome, moved, own = _changed(config, change, ids, logits, shapes)
        outcomes[name] = {"change": change, "outcome": outcome} | ({"tensors": own} if own else {})
        if moved is not None:
            arrays[f"logits of {name}"] = moved[SEEN, columns[:FEW]]
            arrays[f"std of {name}"] = np.float32(moved.std())
        print(f"{config['model_type']}: {name}: {outcome}", flush=True)
    return {"config": config, "tensors": shapes, "changes": outcomes}, arrays


def _changed(
    config: dict[str, Any],
    change: Mapping[str, Any],
    ids: np.ndarray,
    before: np.ndarray,
    shapes: dict[str, Any],
) -> tuple[str, np.ndarray | None, dict[str, Any]]:
    """The outcome, the logits that moved, and tensors that came, went or changed their shape."""
    fields = {key: value for key, value in change.items() if key != "shift"}
    try:
        model, own = _model({**config, **fields}, shift=change.get("shift", {}))
        logits = _logits(model, ids)
    except Exception as fault:  # noqa: BLE001 -- whatever transformers does not take
        print("   ", f"{type(fault).__name__}: {fault}"[:200])
        return "refused", None, {}
    differ = {name: own.get(name) for name in {**shapes, **own} if own.get(name) != shapes.get(name)}
    if not np.isfinite(logits).all():
        return "refused", None, {}
    moved = bool(differ) or np.abs(logits - before).max() > UNMOVED * before.std()
    return ("moved", logits, differ) if moved else ("same", None, {})


def _one_by_one(config: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in config.items():
        if name not in ASIDE and "dropout" not in name and "pdrop" not in name:
            for other in _others(name, value):
                yield f"{name} = {other}", {name: other}


def _others(name: str, value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value * 2] if value else [1]
    if isinstance(value, float):
        return [0.05 if "eps" in name else value * 4 if value else 0.5]
    if isinstance(value, str):
        return [other for other in ("gelu", "gelu_pytorch_tanh", "relu", "silu") if other != value]
    return [True, 2, 0.5] if value is None else []


def _model(
    config: Mapping[str, Any], *, rounded: bool = False, shift: Mapping[str, float] | None = None
) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """The model in float32 as read from a file, and the shapes of the file's tensors."""
    config = copy.deepcopy(dict(config))  # transformers writes into the blocks that it is given
    kind = type(transformers.AutoConfig.for_model(config["model_type"]))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        blank = transformers.AutoModelForCausalLM.from_config(kind.from_dict(copy.deepcopy(config))).float()
        blank.save_pretrained(folder)
        with safe_open(folder / "model.safetensors", "numpy") as opened:
            shapes = {name: tuple(opened.get_slice(name).get_shape()) for name in sorted(opened.keys())}
        state = random_state(shapes)
        for end, constant in (shift or {}).items():
            state |= {
                name: array + np.float32(constant) for name, array in state.items() if name.endswith(end)
            }
        if rounded:
            state = {name: torch.from_numpy(x).bfloat16().float().numpy() for name, x in state.items()}
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps({**config, "dtype": "float32"}, default=str))
        model, told = type(blank).from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
        )
    assert not told["unexpected_keys"], told
    assert not told["missing_keys"], told
    return model.eval(), shapes


def _logits(model: Any, ids: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(ids)[None]).logits[0].float().numpy()


def _greedy(model: Any, prompt: np.ndarray) -> tuple[list[int], list[float]]:
    """GREEDY tokens without a cache, and by how much each was the best."""
    ids, margins = [int(i) for i in prompt], []
    for _ in range(GREEDY):
        best = np.sort(last := _logits(model, np.array(ids))[-1])[-2:]
        margins.append(float(best[1] - best[0]))
        ids.append(int(last.argmax()))
    return ids[len(prompt) :], margins


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """As config.json holds it, inner configs without what every config has."""
    return {
        key: {k: v for k, v in value.items() if k not in ASIDE} if key.endswith("_config") else value
        for key, value in config.items()
        if key not in ("transformers_version", "id2label", "label2id", "dtype", "_name_or_path")
    }


def _short(value: Any) -> Any:
    return [*value[:4], "..."] if isinstance(value, list) and len(value) > 8 else value


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1:])
