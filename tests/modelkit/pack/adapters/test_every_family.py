"""Every matrix of every family: the pair goes where the fused matrix goes."""

from contextlib import nullcontext
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from modelkit.errors import SourceError
from modelkit.pack.adapters.filled import as_arrays, fill
from modelkit.pack.adapters.place import place
from modelkit.pack.adapters.shared_blocks import for_every_use
from modelkit.source.adapters.reading import read_adapter
from runtime.loading.unused import without_unused
from runtime.models import Described, describe
from runtime.nn.adapters.low_rank import LowRank, LowRanks
from tests.support.checkpoints import random_state, random_tensor
from tests.support.kinds import variants_later
from tests.support.parity import Reference
from tests.support.peft_folders import (
    computed_matrices,
    delta_of,
    holds_input_first,
    pair_for,
    peft_tensors,
    write_peft,
)

SCALE = 2.0  # 6 / 3


@pytest.mark.parametrize("name", variants_later(Reference.names()))
def test_a_pair_goes_where_the_matrix_goes(name: str, tmp_path: Path) -> None:
    reference = Reference(name)
    described = describe(reference.record["config"])
    state = random_state(reference.record["tensors"])
    taken = computed_matrices(described, {n: tuple(a.shape) for n, a in state.items()})
    tensors: dict[str, np.ndarray] = {}
    fused = dict(state)
    for matrix, shape in taken.items():
        first = holds_input_first(described, matrix)
        left, right = pair_for(matrix, shape, 3, input_first=first)
        tensors |= peft_tensors(matrix, left, right)
        fused[matrix] = state[matrix] + delta_of(left, right, SCALE, input_first=first)
    stacks = sorted({one.partition("layers.")[2].partition(".")[2] for one in taken if one.endswith("_proj")})
    tensors = for_every_use(tensors, described)
    folder = write_peft(tmp_path / "lora", tensors, target_parameters=stacks or None)
    placement = place(read_adapter(folder), described, {n: tuple(a.shape) for n, a in state.items()})
    filled, scales = fill(placement, described)
    found = LowRanks.of(as_arrays(filled), scales)
    before, after = _adapted(described, state), _adapted(described, fused)
    changed = {key for key in before if not np.array_equal(before[key], after[key])}
    repeated = {key for key in changed if key.startswith("lm_head.")}  # a head that the file lacks
    assert changed - repeated <= {f"{module}.weight" for module in found.pairs} <= changed
    for one in placement.placed:
        wanted = after[f"{one.module}.weight"] - before[f"{one.module}.weight"]
        got = _delta(found.pairs[one.module], table=one.kind == "table")
        np.testing.assert_allclose(got, wanted, atol=2e-5, rtol=1e-4, err_msg=one.module)


@pytest.mark.parametrize(("experts", "fits"), [(8, True), (5, True), (6, False), (9, False)])
def test_experts_that_do_not_compute_may_have_a_pair(experts: int, fits: bool, tmp_path: Path) -> None:
    """LongCat's class has rows for all, of which three of eight are only passed by."""
    reference = Reference("longcat_flash").record
    described = describe(reference["config"])
    name = "model.layers.0.mlp.experts.gate_up_proj"
    left, right = pair_for(name, (experts, *reference["tensors"][name][1:]), 3, input_first=False)
    folder = write_peft(tmp_path / "lora", peft_tensors(name, left, right), target_parameters=[name])
    with nullcontext() if fits else pytest.raises(SourceError, match="shapes that the base has not"):
        place(read_adapter(folder), described, {n: tuple(s) for n, s in reference["tensors"].items()})


def test_stacks_may_be_called_weights(tmp_path: Path) -> None:
    """Step 3.5's class has a parameter `weight` for the experts of each projection."""
    reference = Reference("step3p5").record
    described, state = describe(reference["config"]), random_state(reference["tensors"])
    stacks = {name: array for name, array in state.items() if ".moe." in name and array.ndim == 3}
    tensors: dict[str, np.ndarray] = {}
    fused = dict(state)
    for name, stack in stacks.items():
        experts, rows, columns = stack.shape
        left, right = random_tensor("l", (experts, rows, 3)), random_tensor("r", (experts, 3, columns))
        module = f"base_model.model.{name.removesuffix('.weight')}"
        tensors[f"{module}.lora_A.weight"] = right.reshape(-1, columns)
        tensors[f"{module}.lora_B.weight"] = left.transpose(1, 2, 0).reshape(rows, -1)
        fused[name] = stack + np.float32(SCALE) * (left @ right)
    folder = write_peft(tmp_path / "lora", tensors, target_parameters=sorted(stacks))
    placement = place(read_adapter(folder), described, {n: tuple(a.shape) for n, a in state.items()})
    filled, scales = fill(placement, described)
    found = LowRanks.of(as_arrays(filled), scales)
    before, after = _adapted(described, state), _adapted(described, fused)
    assert len(found.pairs) == len(stacks)
    for module, pair in found.pairs.items():
        wanted = after[f"{module}.weight"] - before[f"{module}.weight"]
        np.testing.assert_allclose(_delta(pair, table=False), wanted, atol=2e-5, rtol=1e-4)


def _adapted(described: Described, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    arrays = {name: mx.array(array) for name, array in state.items()}
    adapted = described.family.adapt(described.config, without_unused(described, arrays))
    return {name: np.array(array) for name, array in adapted.items()}


def _delta(pair: LowRank, *, table: bool) -> np.ndarray:
    delta = np.array(pair.scale * (pair.down @ pair.up))
    return delta if table else delta.swapaxes(-1, -2)
