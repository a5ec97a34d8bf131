import io
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.errors import SourceError
from modelkit.modelfile.quantizing import parse_format
from modelkit.pack.planning.plan import plan
from modelkit.pack.planning.plan_types import Planned, PlannedFile
from modelkit.pack.planning.slabs import Piece, Slab
from modelkit.pack.writing.reader import Reader
from modelkit.pack.writing.transform import transform
from modelkit.pack.writing.write import LINE_BYTES, header_of, write_file
from modelkit.source.inventory import Inventory
from modelkit.source.prequantized import FloatWeights
from modelkit.source.safetensors import read_header
from modelkit.source.tensor import TensorInfo

Save = Callable[[Path, Mapping[str, mx.array], Mapping[str, Any]], Inventory]


@pytest.fixture
def source(tmp_path: Path, save: Save) -> Inventory:
    arrays = {f"model.layers.{i}.mlp.up_proj.weight": mx.random.normal((64, 128)) for i in range(4)}
    return save(tmp_path / "source", arrays, {})


def planned_file(source: Inventory) -> PlannedFile:
    wanted = parse_format("q4")
    return plan(source, FloatWeights(), wanted).files[0]


def test_our_own_strict_reader_accepts_the_file(tmp_path: Path, source: Inventory) -> None:
    file = planned_file(source)
    with Reader(source.weights) as reader, (tmp_path / "out.safetensors").open("wb") as sink:
        write_file(file, sink, reader, transform)
    header = read_header(tmp_path / "out.safetensors")
    names = [output.name for tensor in file.tensors for output in tensor.outputs]
    assert [tensor.name for tensor in header.tensors] == names
    assert header.metadata == {"format": "mlx"}


def test_the_header_is_aligned(source: Inventory) -> None:
    header = header_of(planned_file(source))
    assert len(header) % LINE_BYTES == 0
    assert json.loads(header[8:])["__metadata__"] == {"format": "mlx"}


def test_two_runs_write_the_same_bytes(source: Inventory) -> None:
    runs: list[bytes] = []
    for _ in range(2):
        sink = io.BytesIO()
        with Reader(source.weights) as reader:
            write_file(planned_file(source), sink, reader, transform)
        runs.append(sink.getvalue())
    assert runs[0] == runs[1]


def test_progress_adds_up_to_the_bytes_read(source: Inventory) -> None:
    heard: list[int] = []
    with Reader(source.weights) as reader:
        write_file(planned_file(source), io.BytesIO(), reader, transform, heard.append)
    assert sum(heard) == sum(tensor.nbytes for tensor in source.tensors.values())


def test_an_error_ends_everything(source: Inventory) -> None:
    def fail(planned: Planned, slab: Piece, reader: Reader) -> tuple[bytearray, ...]:
        raise SourceError("gone")

    before = {*threading.enumerate()}
    with Reader(source.weights) as reader, pytest.raises(SourceError, match="gone"):
        write_file(planned_file(source), io.BytesIO(), reader, fail)
    assert {*threading.enumerate()} <= before


def test_a_source_that_changed_is_not_read(source: Inventory) -> None:
    path = source.weights[0].path
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(SourceError, match="changed"), Reader(source.weights):
        pass


def test_a_source_that_changes_meanwhile_is_noticed(source: Inventory) -> None:
    with Reader(source.weights) as reader:
        source.weights[0].path.touch()
        with pytest.raises(SourceError, match="changed"):
            reader.check_unchanged()


def test_a_source_that_shrank_meanwhile_is_noticed(source: Inventory) -> None:
    with Reader(source.weights) as reader:
        with source.weights[0].path.open("r+b") as file:
            file.truncate(100)
        with pytest.raises(SourceError, match="changed while"):
            write_file(planned_file(source), io.BytesIO(), reader, transform)


@given(
    rows=st.integers(0, 50), step=st.integers(1, 3), row_bytes=st.integers(0, 40), limit=st.integers(1, 300)
)
def test_blocks_cover_a_slab_in_order(rows: int, step: int, row_bytes: int, limit: int) -> None:
    tensor = TensorInfo("x", "U8", (rows, row_bytes), Path("x"), 0, rows * row_bytes)
    slab = Slab(tensor, min(1, rows), rows, step, row_bytes)
    covered = [row for block in slab.blocks(limit) for row in range(block.start, block.stop, block.step)]
    assert covered == (list(range(slab.start, rows, step)) if row_bytes else [])
