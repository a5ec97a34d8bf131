"""Model folders for embeddings: a reference's checkpoint, a tokenizer, sentence-transformers' files."""

import json
from pathlib import Path
from typing import Any

from tests.support.checkpoints import random_state
from tests.support.tiny import write_tokenizer

_DATA = Path(__file__).resolve().parents[1] / "data" / "embeddings"
_KINDS = ("Transformer", "Pooling", "Normalize")
FLAGS = {
    "first": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "last": "pooling_mode_lasttoken",
    "weighted": "pooling_mode_weightedmean_tokens",
    "root": "pooling_mode_mean_sqrt_len_tokens",
}


def reference(name: str) -> dict[str, Any]:
    """What `make_embedding_references` stored."""
    return json.loads((_DATA / f"{name}.json").read_text(encoding="utf-8"))


def write_reference(
    folder: Path, name: str, *, pool: str | None = None, prefix: str = "", **changes: Any
) -> Path:
    """The reference's model. prefix: in front of every tensor's name. changes: to its config."""
    from safetensors.numpy import save_file

    record = reference(name)
    folder.mkdir(parents=True, exist_ok=True)
    config = {**record["config"], **changes}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    state = random_state({one: tuple(shape) for one, shape in record["tensors"].items()})
    save_file({prefix + one: x for one, x in state.items()}, folder / "model.safetensors")
    write_tokenizer(folder, tokens=config["vocab_size"])
    if pool is not None:
        write_modules(folder, {FLAGS[pool]: True})
    return folder


def write_modules(folder: Path, pooling: dict[str, Any], kinds: tuple[str, ...] = _KINDS) -> None:
    """modules.json, and the file of the pooling module."""
    modules = [
        {
            "idx": place,
            "name": str(place),
            "path": f"{place}_{kind}" if place else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for place, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "1_Pooling").mkdir(exist_ok=True)
    flags = {flag: pooling.get(flag, False) for flag in FLAGS.values()}
    config = {"word_embedding_dimension": 32, **flags, **pooling}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config), encoding="utf-8")
