"""One rank that reads with its share of tiny models (`found`).

Rank 0 has the whole model beside its share, and compares the two. form: "floats", "packed" for matrices in
8 bits, or "blocks" for those of GGUF's Q8_0.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.build import build_memory
from runtime.cpu import native
from runtime.cpu.native.layers import runs_of
from runtime.device import device
from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from runtime.loading.plan import device_for_cutting
from runtime.nn.adapters.adapter import Adapter, kind_of, logical_shape
from runtime.nn.adapters.low_rank import HEAD, LowRanks, Rows
from runtime.nn.adapters.rows import RowAdapters
from runtime.nn.adapters.stacks import AdapterStacks
from runtime.nn.positions.rope_spec import long_after
from runtime.ranks import stage_rank
from runtime.ranks.group import Group
from runtime.ranks.load import Assignment, load_share
from runtime.ranks.parts import parts_of
from runtime.ranks.plan import Host, decide
from runtime.ranks.trunk import chain_of
from runtime.step import Inputs, Step
from tests.support.checkpoints import random_state
from tests.support.low_ranks import pairs_of
from tests.support.parity import FOLDER, Reference

SPECIAL = FOLDER.parent / "special"
"""References with tests of their own."""
GROUP_SIZE = 32
CHUNK, TOKENS = 12, 36
NAMES = {mx.float32: "F32", mx.uint32: "U32", mx.uint8: "U8", mx.int64: "I64"}

Stored = tuple[dict[str, mx.array], Mapping[str, Any]]
"""Tensors and their config."""

Scales = tuple[tuple[str, float], ...]
ROWS: tuple[Scales, ...] = ((), (("1", 1.0),), (("2", 0.5), ("1", -0.3)), (("3", 1.0),))
"""One without, and several in one batch."""


def read(
    model: LoadedModel, ids: list[int], rank: int, chunk: int = CHUNK, members: Sequence[Scales] = ((),)
) -> np.ndarray | None:
    """Rank 0's logits, float32 [T, B, V]. The prompt in steps, of which rank 0 wants logits and the others
    memory alone, each with a token more that is then forgotten. members: of each row its adapters. What an
    encoder reads is the same backwards.
    """
    border, rows = long_after(model.described.config), len(members)
    long = None if border is None else (len(ids) > border,) * rows
    memory = build_memory(model.described.layout, rows=rows, dtype=model.dtype)
    named = [tuple((model.adapters[name], scale) for name, scale in row) for row in members]
    adapters = RowAdapters(AdapterStacks(model.adapters.values()), named) if any(members) else None
    found: list[np.ndarray] = []
    for start in range(0, len(ids), chunk):
        part = [*ids[start : start + chunk], ids[0]]
        inputs = Inputs(mx.array([part] * rows, dtype=mx.int32))
        step = Step((start,) * rows, (len(part),) * rows, long=long, inputs=inputs, adapters=adapters)
        memory.prepare(step)
        if model.described.start_id is not None and not start:
            model.network.encode(Inputs(mx.array([ids[::-1]] * rows, dtype=mx.int32)), step, memory)
        hidden = model.network(step, memory)
        if rank == 0:
            logits = model.network.logits(hidden, step)[:, :-1]
            found.append(np.array(logits.astype(mx.float32)).swapaxes(0, 1))
        else:
            memory.evaluate()
        memory.commit(step, [len(part) - 1] * rows)
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


def in_order(weights: dict[str, mx.array], config: Mapping[str, Any]) -> Stored:
    """The same, with inputs in an order of each matrix's own."""
    made, _ = packed(weights, config)
    for name in [name for name in made if name.endswith("_proj.scales")]:
        stem, dice = name.removesuffix("scales"), np.random.default_rng(sum(name.encode()))
        order = mx.array(dice.permutation(weights[f"{stem}weight"].shape[-1]).astype(np.uint32))
        parts = mx.quantize(weights[f"{stem}weight"][:, order], GROUP_SIZE, 8)
        made |= dict(zip((f"{stem}{leaf}" for leaf in ("weight", "scales", "biases")), parts, strict=True))
        made[f"{stem}order"] = order
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


def in_ternary(weights: dict[str, mx.array], config: Mapping[str, Any]) -> Stored:
    """BitNet's, rounded when they are read, as is what they read."""
    said = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "online"}
    return weights, {**config, "quantization_config": said}


def compared(group: Group, shards: int, form: str, name: str) -> dict[str, Any]:
    """Rank 0: how its answers differ from those of one process, as share of their size. All: bytes."""
    config, shapes, answers = _deeper(*name.split(" of ")) if " of " in name else _said(name)
    ids = [int(token) for token in answers["ids"][:TOKENS]]
    weights = {key: mx.array(value) for key, value in random_state(shapes).items()}
    if form != "floats":
        weights, config = FORMS[form](weights, config)
    on = None if form == "floats" else device()
    with TemporaryDirectory() as folder:
        file = Path(folder, "model.safetensors")
        mx.save_safetensors(str(file), weights)
        headers: Mapping[str, Any] = {key: (NAMES[one.dtype], one.shape) for key, one in weights.items()}
        plan = decide(parts_of(config, headers, shards=shards, on=on), [Host("")] * group.size)
        model = load_share(config, [file], Assignment(plan, group), on=on)
        # By kernels, what a token comes to does not depend on how its prompt was cut.
        other = CHUNK if native.kernels is None else CHUNK - 5
        chunks = (CHUNK, other) if shards == 2 else (CHUNK,)
        got = [read(model, ids, group.rank, chunk) for chunk in chunks]
        said = {"bytes": model.weight_bytes, "planned": plan.shares[group.rank].weight_bytes}
        said["alone"] = computed_alone(model)
        if group.rank:
            return said
        held_alike = device_for_cutting(on, config) if shards > 1 else on
        expected = read(load_model(config, [file], on=held_alike), ids, 0)
    assert expected is not None
    first, *again = [one for one in got if one is not None]
    bits = hashlib.sha256(first.tobytes()).hexdigest()
    off = float(np.abs(first - expected).max() / np.abs(expected).max())
    same = bool((first == expected).all())
    repeated = all(bool((one == first).all()) for one in again)
    return said | {"bits": bits, "same": same, "off": off, "again": repeated}


def _said(name: str) -> tuple[Mapping[str, Any], Mapping[str, Any], Any]:
    """A reference's config, shapes and answers."""
    reference = Reference(name) if name in Reference.names() else Reference(name, SPECIAL)
    return reference.record["config"], reference.record["tensors"], reference.answers


def _deeper(name: str, layers: str) -> tuple[Mapping[str, Any], Mapping[str, Any], Any]:
    """The same with so many layers (of its encoder, if there is one) like the last, for as many stages."""
    config, shapes, answers = _said(name)
    field, inside = (
        ("num_layers", "encoder.block.") if "num_layers" in config else ("num_hidden_layers", ".layers.")
    )
    count = config[field]
    last = {key: shape for key, shape in shapes.items() if f"{inside}{count - 1}." in key}
    more = {
        key.replace(f"{inside}{count - 1}.", f"{inside}{place}."): shape
        for place in range(count, int(layers))
        for key, shape in last.items()
    }
    return {**config, field: int(layers)}, {**shapes, **more}, answers


def computed_alone(model: LoadedModel) -> int:
    """Layers that are not computed together with others when one token is read."""
    layers = chain_of(model.network, model.described.layout, model.described.name).layers
    return len(layers) - sum(len(run.layers) for run in runs_of(layers, whole=True))


def _shape(module: Any, leaf: str) -> tuple[int, ...]:
    return logical_shape(module)[: 2 if leaf == "weight" else 1]


def replaced(network: Any) -> LowRanks:
    """Whole parameters in place of every matrix's, and rows of the table."""
    random, whole, rows = np.random.default_rng(3), dict[str, mx.array](), dict[str, Rows]()

    def array(*shape: int) -> mx.array:
        return mx.array(random.normal(size=shape).astype(np.float32) * 0.1)

    for name, module in network.named_modules():
        if kind_of(module) == "matrix" and name != HEAD:
            whole |= {
                f"{name}.{leaf}": array(*_shape(module, leaf))
                for leaf in ("weight", "bias")
                if leaf in module
            }
        elif kind_of(module) == "table" and not rows:
            rows[f"{name}.weight"] = Rows(mx.array([23, 40]), array(2, logical_shape(module)[1]))
    return LowRanks({}, whole, rows)


def adapted(group: Group, shards: int, form: str, *names: str) -> dict[str, float]:
    """Rank 0, by the reference's name: how its answers with adapters differ from those of one process."""
    return {name: _adapted(group, shards, form, name) for name in names}


def _adapted(group: Group, shards: int, form: str, name: str) -> float:
    reference = Reference(name)
    config, ids = reference.record["config"], [int(token) for token in reference.answers["ids"][:9]]
    weights = {key: mx.array(value) for key, value in random_state(reference.record["tensors"]).items()}
    if form != "floats":
        weights, config = FORMS[form](weights, config)
    with TemporaryDirectory() as folder:
        file = Path(folder, "model.safetensors")
        mx.save_safetensors(str(file), weights)
        headers: Mapping[str, Any] = {key: (NAMES[one.dtype], one.shape) for key, one in weights.items()}
        plan = decide(parts_of(config, headers, shards=shards), [Host("")] * group.size)
        whole = load_model(config, [file])
        # Seed 2 is DoRA: magnitudes, and norms of what is cut by its inputs.
        brought = {str(seed): LowRanks(pairs_of(whole.network, seed, dora=seed == 2)) for seed in (1, 2)}
        brought["3"] = replaced(whole.network)
        model = load_share(config, [file], Assignment(plan, group), adapters=brought)
        got = read(model, ids, group.rank, members=ROWS)
    if got is None:
        return 0.0
    own = {key: Adapter(whole.network, one, whole.dtype) for key, one in brought.items()}
    expected = read(replace(whole, adapters=own), ids, 0, members=ROWS)
    assert expected is not None
    assert np.abs(expected[:, 0] - expected[:, 1]).max() > 1e-2 * np.abs(expected).max(), "nothing was added"
    return float(np.abs(got - expected).max() / np.abs(expected).max())


FORMS: dict[str, Callable[[dict[str, mx.array], Mapping[str, Any]], Stored]] = {
    "packed": packed,
    "ordered": in_order,
    "blocks": in_blocks,
    "ternary": in_ternary,
}


def in_turns(group: Group, *names: str) -> dict[str, Any]:
    """With sums whose messages are long ones, so that of two ranks one sends first (`ranks.stage_rank`)."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stage_rank, "SMALL_BYTES", 0)
        return found(group, 2, "floats", *names)


def found(group: Group, shards: int, form: str, *names: str) -> dict[str, Any]:
    """By the reference's name."""
    return {name: compared(group, shards, form, name) for name in names}
