"""A rank that lacks the weights gets what it needs of them, and loads of that what others load of files."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from modelkit.errors import StoreError
from modelkit.ranks import pieces
from modelkit.ranks.outline import read_front, write_hollow
from modelkit.ranks.pieces import pieces_of
from modelkit.source.safetensors import read_header
from modelkit.source.tensor import TensorInfo
from modelkit.store.digest import Digest
from modelkit.store.slices import Sliced
from runtime.device import device
from runtime.models import describe
from runtime.ranks.group import Group
from runtime.ranks.load import Assignment, load_share, slices_of
from runtime.ranks.parts import parts_of
from runtime.ranks.plan import Host, decide
from runtime.ranks.slices import Slice
from tests.support import ranks
from tests.support import slicing as scenes
from tests.support.assistants import record_of
from tests.support.checkpoints import random_state, write_checkpoint
from tests.support.heads import HeadReference
from tests.support.parity import Reference
from tests.support.ranks import Standing
from tests.support.sharing import FORMS

Crews = Callable[[int], Standing]

# Grouped heads, experts that are stacked first, latent and recurrent layers, filters that are turned, norms
# that are computed, a table for all ranks, one matrix for three, a block that layers of both stages run.
FAMILIES = ("qwen2_moe", "deepseek_v3", "qwen3_next", "gemma2", "kimi_linear", "gemma4_text", "phi3_window")
NEWER = ("mamba_biases", "rwkv7", "mistral_large4", "zamba2_plain", "t5", "umt5", "t5gemma")
FORMED = [
    *((name, "floats") for name in FAMILIES + NEWER),
    *((FAMILIES[i], "packed") for i in (0, 1, 6)),
    ("phi3_window", "blocks"),
    ("qwen2_moe", "ordered"),
    ("bitnet", "ternary"),
]


def kept(folder: Path, one: Slice, tensor: TensorInfo) -> Path:
    """A slice as the store keeps it."""
    numbers = b"".join(piece.read(tensor).tobytes() for piece in pieces_of(one, tensor))
    shape = one.shape(tensor.shape)
    said = Sliced(Digest("0" * 64), one.tensor, json.dumps(one.to_json()), tensor.dtype, shape, len(numbers))
    path = folder / f"{len([*folder.iterdir()])}.safetensors"
    path.write_bytes(said.header("0" * 64) + numbers)
    return path


@pytest.mark.parametrize(("name", "form"), FORMED)
def test_of_slices_the_same_is_loaded_as_of_files(
    name: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, dice = Reference(name), random.Random(name + form)
    weights = {key: mx.array(value) for key, value in random_state(reference.record["tensors"]).items()}
    config: Any = reference.record["config"]
    if form != "floats":
        weights, config = FORMS[form](weights, config)
    file = tmp_path / "model.safetensors"
    mx.save_safetensors(str(file), weights)
    tensors = {tensor.name: tensor for tensor in read_header(file).tensors}
    headers = {key: (tensor.dtype, tensor.shape) for key, tensor in tensors.items()}
    on = device()
    for shards in (1, 2):
        monkeypatch.setattr(pieces, "PIECE_BYTES", dice.choice([100, 3000, 1 << 20]))
        plan = decide(parts_of(config, headers, shards=shards, on=on), [Host("")] * 2)
        group = cast("Group", SimpleNamespace(rank=1, size=2, ring=None, alike=True))
        assigned = Assignment(plan, group)
        needed = slices_of(config, headers, assigned, on=on, adapters={})
        (tmp_path / f"{shards}").mkdir()
        paths = {one: kept(tmp_path / f"{shards}", one, tensors[one.tensor]) for one in needed}
        if shards == 1 or form not in ("blocks", "ordered", "ternary"):  # of which shards make something else
            assert sum(path.stat().st_size - 300 for path in paths.values()) < 0.95 * file.stat().st_size
        whole = load_share(config, [file], assigned, on=on)
        assert _bits(load_share(config, [], assigned, on=on, sliced=(headers, paths))) == _bits(whole)


@pytest.mark.parametrize("name", ["deepseek_v3", "qwen3_5"])
def test_rank_0_has_slices_of_the_draft_head_too(name: str, tmp_path: Path) -> None:
    reference = HeadReference(name)
    folder = write_checkpoint(tmp_path, reference.record["config"], reference.record["tensors"])
    _same_of_slices(reference.record["config"], folder / "model.safetensors", with_head=True)


def test_rank_0_has_slices_of_layers_that_it_copies(tmp_path: Path) -> None:
    config, tensors = record_of("target")
    file = tmp_path / "model.safetensors"
    state = random_state({name: shape for name, (_, shape) in tensors.items()})
    mx.save_safetensors(str(file), {name: mx.array(value) for name, value in state.items()})
    last = len(describe(config).layout) - 1
    _same_of_slices(config, file, copied=(last - 1, last))


def _same_of_slices(
    config: Any, file: Path, *, with_head: bool = False, copied: tuple[int, ...] = ()
) -> None:
    """For rank 0 of two stages."""
    tensors = {tensor.name: tensor for tensor in read_header(file).tensors}
    headers = {key: (tensor.dtype, tensor.shape) for key, tensor in tensors.items()}
    on = device()
    plan = decide(parts_of(config, headers, on=on), [Host("")] * 2)
    group = cast("Group", SimpleNamespace(rank=0, size=2, ring=None, alike=True))
    assigned = Assignment(plan, group, with_head, copied)
    needed = slices_of(config, headers, assigned, on=on, adapters={})
    folder = file.with_name(f"slices-{copied}")
    folder.mkdir()
    paths = {one: kept(folder, one, tensors[one.tensor]) for one in needed}
    assert sum(path.stat().st_size - 300 for path in paths.values()) < 0.95 * file.stat().st_size
    whole = load_share(config, [file], assigned, on=on)
    share = load_share(config, [], assigned, on=on, sliced=(headers, paths))
    assert (share.head is not None) == with_head
    assert _bits(share) == _bits(whole)
    if share.head is not None and whole.head is not None:
        assert _bits(share.head) == _bits(whole.head)


def _bits(share: Any) -> dict[str, tuple[str, bytes]]:
    """Of all that it holds."""
    arrays = dict(tree_flatten(share.network.parameters())).items()
    return {name: (str(array.dtype), bytes(memoryview(_bytes(array)))) for name, array in arrays}


def _bytes(array: Any) -> Any:
    return mx.contiguous(array).view(mx.uint8)


CUTS = (
    Slice("x", 0, ((0, 1),)),
    Slice("x", 1, ((0, 2), (4, 5))),
    Slice("x", 2, ((1, 3),)),
    Slice("x", 3, ((0, 1), (3, 4))),
    Slice("x"),
)


@pytest.mark.parametrize("most", [1, 7, 40, 1000])
def test_pieces_are_the_numbers_in_their_order(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", most)
    numbers = np.arange(2 * 5 * 3 * 4, dtype=np.int16).reshape(2, 5, 3, 4)
    path = tmp_path / "numbers"
    path.write_bytes(b"before" + numbers.tobytes())
    tensor = TensorInfo("x", "I16", numbers.shape, path, 6, 6 + numbers.nbytes)
    for one in CUTS:
        axis, ranges = one.axis, one.ranges
        found = [*pieces_of(one, tensor)]
        ends = [(piece.nbytes, piece.read(tensor).tobytes()) for piece in found]
        expected = np.concatenate(
            [numbers[(slice(None),) * axis + (slice(*ends),)] for ends in ranges or ((0, 2),)], axis=axis
        )
        assert b"".join(data for _, data in ends) == expected.tobytes()
        assert all(nbytes == len(data) <= most for nbytes, data in ends)


def test_of_nothing_there_are_no_pieces(tmp_path: Path) -> None:
    tensor = TensorInfo("x", "F32", (0, 4), tmp_path, 6, 6)
    assert [*pieces_of(Slice("x"), tensor)] == []


def test_a_file_that_has_lost_its_end_is_said(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(b"1234")
    (piece,) = pieces_of(Slice("x"), TensorInfo("x", "U8", (8,), path, 0, 8))
    with pytest.raises(ValueError, match="greater than file size"):
        piece.read(TensorInfo("x", "U8", (8,), path, 0, 8))


def test_a_front_is_a_header_and_no_more_than_can_be_told(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    mx.save_safetensors(str(path), {"x": mx.zeros(300)})
    front = read_front(path)
    assert path.read_bytes().startswith(front)
    assert len(front) == path.stat().st_size - 1200
    write_hollow(tmp_path / "hollow", front, path.stat().st_size)
    assert read_header(tmp_path / "hollow").tensors[0].shape == (300,)
    with pytest.raises(StoreError, match="a header of"):
        write_hollow(tmp_path / "short", front, len(front) - 1)
    path.write_bytes((1 << 30).to_bytes(8, "little") + b"{}")
    assert read_front(path) == read_front(tmp_path / "none") == b""


def played(rank_group: Standing, folder: Path, name: str) -> list[Any]:
    return [answer[name] for answer in rank_group.do(folder, scenes.__name__, "scenes", name)]


def test_a_rank_that_lacks_the_weights_is_given_its_share(crews: Crews, tmp_path: Path) -> None:
    """Once; what it has is not a package, and `prune` takes it away."""
    for said in played(crews(3), tmp_path, "given")[1:]:
        assert said["first"]["notes"]
        assert 0 < said["first"]["slices"] < 0.7 * said["whole"]
        assert said["again"]["notes"] == []
        assert said["again"]["written"] == 0
        assert (said["named"], said["problems"], said["left"]) == ([], [], 0)
        assert said["damaged"] == 1
        assert said["pruned"] == 0


def test_what_is_spoiled_on_its_way_is_refused_and_not_kept(crews: Crews, tmp_path: Path) -> None:
    for one in played(crews(2), tmp_path, "spoiled"):
        assert "rank 1 (here) says: other numbers than those of" in one["problem"]
        assert one["rank"] == 0 or 0 < one["slices"] < one["afterwards"]


def test_a_kill_in_the_middle_costs_what_was_not_there(crews: Crews, tmp_path: Path) -> None:
    processes = ranks.start(tmp_path, 2, scenes.__name__)
    try:
        said, err = processes[0].communicate(timeout=120)
        assert "cannot be reached" in said, err
        assert processes[1].wait(60) == -9
    finally:
        ranks.stop(processes)
    _, second = played(crews(2), tmp_path, "rest")
    assert second["before"] == 3
    assert second["written"] == second["after"] - 3


def test_nonsense_is_refused_on_all_ranks(crews: Crews, tmp_path: Path) -> None:
    for said in played(crews(2), tmp_path, "nonsense"):
        assert "rank 1 (here) asks for what the model does not have" in said["problem"]


def test_a_disk_without_room_is_said(crews: Crews, tmp_path: Path) -> None:
    for said in played(crews(2), tmp_path, "full"):
        assert "rank 1 (here) says: " in said["problem"]
        assert "must be written to" in said["problem"]
