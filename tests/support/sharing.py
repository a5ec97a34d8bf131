"""One rank that reads with its share of tiny models (`found`).

Rank 0 has the whole model beside its share, and compares the two. form: "floats", "packed" for matrices in
8 bits, or "blocks" for those of GGUF's Q8_0.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
import numpy as np

from runtime.cache.build import build_memory
from runtime.cpu import native
from runtime.device import device
from runtime.loaded import LoadedModel, load_model
from runtime.nn.rope_spec import long_after
from runtime.planned import apart
from runtime.ranks.group import Group
from runtime.ranks.load import load_share
from runtime.ranks.parts import parts_of
from runtime.ranks.plan import Host, decide
from runtime.step import Inputs, Step
from tests.support.checkpoints import random_state
from tests.support.parity import Reference

GROUP_SIZE = 32
CHUNK, TOKENS = 12, 24
_NAMES = {mx.float32: "F32", mx.uint32: "U32", mx.uint8: "U8"}

Stored = tuple[dict[str, mx.array], Mapping[str, Any]]
"""Tensors and their config."""


def read(model: LoadedModel, ids: list[int], rank: int, chunk: int = CHUNK) -> np.ndarray | None:
    """Rank 0's logits, float32 [T, V]. The prompt in steps, of which rank 0 wants logits and the others
    memory alone, each with a token more that is then forgotten.
    """
    border = long_after(model.described.config)
    long = None if border is None else (len(ids) > border,)
    memory = build_memory(model.described.layout, dtype=model.dtype)
    found: list[np.ndarray] = []
    for start in range(0, len(ids), chunk):
        part = [*ids[start : start + chunk], ids[0]]
        inputs = Inputs(mx.array([part], dtype=mx.int32))
        step = Step(starts=(start,), counts=(len(part),), long=long, inputs=inputs)
        memory.prepare(step)
        hidden = model.network(step, memory)
        if rank == 0:
            logits = model.network.logits(hidden, step)[0, :-1]
            found.append(np.array(logits.astype(mx.float32)))
        else:
            memory.evaluate()
        memory.commit(step, [len(part) - 1])
    return np.concatenate(found) if found else None


def packed(weights: dict[str, mx.array], config: Mapping[str, Any]) -> Stored:
    """Matrices of layers in 8 bits, where groups divide them."""
    made: dict[str, mx.array] = {}
    for name, array in weights.items():
        if name.endswith("_proj.weight") and array.shape[-1] % GROUP_SIZE == 0:
            stem = name.removesuffix("weight")
            codes, scales, biases = mx.quantize(array, GROUP_SIZE, 8)
            made |= {name: codes, f"{stem}scales": scales, f"{stem}biases": biases}
        else:
            made[name] = array
    return made, config


def in_blocks(weights: dict[str, mx.array], config: Mapping[str, Any]) -> Stored:
    """Matrices of layers in GGUF's Q8_0: 32 codes behind a scale."""
    made, types = dict(weights), dict[str, Any]()
    for name, array in weights.items():
        if name.endswith("_proj.weight") and array.shape[-1] % GROUP_SIZE == 0:
            numbers = np.array(array).reshape(-1, GROUP_SIZE)
            scales = (np.abs(numbers).max(axis=1, keepdims=True) / 127).astype(np.float16)
            codes = np.round(numbers / scales.astype(np.float32)).astype(np.int8)
            rows = np.concatenate([scales.view(np.uint8), codes.view(np.uint8)], axis=1)
            made[name] = mx.array(rows.reshape(array.shape[0], -1))
            types[name.removesuffix(".weight")] = {"mode": "gguf", "type": "q8_0"}
    return made, {**config, "quantization": types}


def compared(group: Group, shards: int, form: str, name: str) -> dict[str, Any]:
    """Rank 0: how its answers differ from those of one process, as share of their size. All: bytes."""
    reference = Reference(name)
    config, ids = reference.record["config"], [int(token) for token in reference.answers["ids"][:TOKENS]]
    weights = {key: mx.array(value) for key, value in random_state(reference.record["tensors"]).items()}
    if form != "floats":
        weights, config = FORMS[form](weights, config)
    on = None if form == "floats" else device()
    with TemporaryDirectory() as folder:
        file = Path(folder, "model.safetensors")
        mx.save_safetensors(str(file), weights)
        headers: Mapping[str, Any] = {key: (_NAMES[one.dtype], one.shape) for key, one in weights.items()}
        plan = decide(parts_of(config, headers, shards=shards, on=on), [Host("")] * group.size)
        model = load_share(config, [file], plan, group, on=on)
        # By kernels, what a token comes to does not depend on how its prompt was cut.
        other = CHUNK if native.kernels is None else CHUNK - 5
        chunks = (CHUNK, other) if shards == 2 else (CHUNK,)
        got = [read(model, ids, group.rank, chunk) for chunk in chunks]
        said = {"bytes": model.weight_bytes, "planned": plan.shares[group.rank].weight_bytes}
        if group.rank:
            return said
        held_alike = apart(on, config) if shards > 1 else on
        expected = read(load_model(config, [file], on=held_alike), ids, 0)
    assert expected is not None
    first, *again = [one for one in got if one is not None]
    off = float(np.abs(first - expected).max() / np.abs(expected).max())
    same = bool((first == expected).all())
    return said | {"same": same, "off": off, "again": all(bool((one == first).all()) for one in again)}


FORMS: dict[str, Callable[[dict[str, mx.array], Mapping[str, Any]], Stored]] = {
    "packed": packed,
    "blocks": in_blocks,
}


def found(group: Group, shards: int, form: str, *names: str) -> dict[str, Any]:
    """By the reference's name."""
    return {name: compared(group, shards, form, name) for name in names}
