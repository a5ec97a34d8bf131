"""What a rank needs of stored tensors, and that nothing else is taken for numbers."""

from pathlib import Path

import mlx.core as mx
import pytest

from runtime.errors import CannotCut
from runtime.ranks.ranges import Taking
from runtime.ranks.slices import Headers, Noting, Slice, Sliced, made_of

HEADERS: Headers = {
    "a": ("F32", (4, 6)),
    "b": ("F32", (4, 6)),
    "codes": ("U32", (8,)),
    "spare": ("F32", (2,)),
}


def test_what_passes_through_is_needed_as_it_is() -> None:
    noting = Noting(HEADERS)
    a, codes = noting.stored["a"], noting.stored["codes"]
    rows = noting(a, 0, [(0, 1), (2, 4)])
    assert rows.shape == (3, 6)
    assert noting.noted([rows, codes]) == [Slice("a", 0, ((0, 1), (2, 4))), Slice("codes")]
    assert noting.noted([noting(a, 1, [(0, 6)])]) == [Slice("a")]


def test_what_is_computed_needs_all_that_it_is_computed_of() -> None:
    noting = Noting(HEADERS)
    a, b, codes = (noting.stored[name] for name in ("a", "b", "codes"))
    made = [mx.stack([a, b])[0] + 1, mx.split(codes, 2)[1].astype(mx.float32)]
    assert noting.noted(made[:1]) == [Slice("a"), Slice("b")]
    assert noting.noted(made[1:]) == [Slice("codes")]
    assert noting.noted([noting(b.T, 0, [(1, 3)])]) == [Slice("b")]
    assert noting.noted([noting(a, 0, [(0, 2)]), a.T]) == [Slice("a")], "whole, and nothing besides"
    assert noting.noted([mx.zeros(3)]) == []


def test_all_rows_of_a_tensor_are_made_of_it() -> None:
    """MLX gives the array itself for them, as another object: tables may be cut to the vocabulary."""
    noting = Noting(HEADERS)
    assert noting.noted([noting.stored["a"][:4]]) == [Slice("a")]


def test_a_drawing_that_nobody_can_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx, "export_to_dot", lambda file, **arrays: file.write("another language"))
    with pytest.raises(CannotCut, match="does not say what arrays are made of"):
        made_of([mx.zeros(2) + 1], {"a": mx.zeros(2)})


def sliced(folder: Path) -> Sliced:
    """b whole, and rows 1 to 3 of a."""
    files = {Slice("b"): folder / "b.safetensors", Slice("a", 0, ((1, 3),)): folder / "a.safetensors"}
    mx.save_safetensors(str(files[Slice("b")]), {"b": mx.arange(24.0).reshape(4, 6)})
    mx.save_safetensors(str(folder / "a.safetensors"), {"a": mx.ones((2, 6))})
    here = {one: mx.load(str(path))[one.tensor] for one, path in files.items()}  # pyright: ignore[reportIndexIssue, reportCallIssue, reportArgumentType]
    return Sliced(HEADERS, here, Taking([files[Slice("b")]], {"b": here[Slice("b")]}))


def test_slices_take_the_place_of_what_they_are_cut_from(tmp_path: Path) -> None:
    found = sliced(tmp_path)
    rows = found(found.stored["a"], 0, [(1, 3)])
    columns = found(found.stored["b"], 1, [(2, 4)])
    found.check([rows, columns, found.stored["b"] * 2])
    assert mx.array_equal(rows, mx.ones((2, 6)))
    assert mx.array_equal(columns, mx.arange(24.0).reshape(4, 6)[:, 2:4])


def test_what_is_not_here_is_never_taken_for_numbers(tmp_path: Path) -> None:
    found = sliced(tmp_path)
    others = found(found.stored["a"], 0, [(0, 2)])
    for array in (others, found.stored["codes"], mx.stack([found.stored["spare"] + 1])):
        with pytest.raises(CannotCut, match="is not what it needs"):
            found.check([array])
    assert mx.all(mx.isnan(others)), "if nobody asked"


@pytest.mark.parametrize(
    "said",
    [
        ["a", 0, [[0, 4]]],
        ["a", 1, [[0, 2], [5, 6]]],
        ["codes", 0, []],
    ],
)
def test_a_slice_is_said_and_read(said: list[object]) -> None:
    assert Slice.from_json(said, HEADERS).to_json() == said


@pytest.mark.parametrize(
    "said",
    [
        None,
        "a",
        ["a"],
        ["z", 0, []],
        ["a", 0, [[0, 5]]],
        ["a", 0, [[2, 2]]],
        ["a", 0, [[-1, 2]]],
        ["a", 2, [[0, 1]]],
        ["a", -1, [[0, 1]]],
        ["a", 0, [[0, 1.5]]],
        ["a", 0, [[0]]],
        ["a", 0, "01"],
        [["a"], 0, []],
    ],
)
def test_no_slice_of_what_there_is_is_refused(said: object) -> None:
    with pytest.raises(CannotCut, match="is no"):
        Slice.from_json(said, HEADERS)


def test_the_shape_of_a_slice() -> None:
    assert Slice("a", 1, ((0, 2), (5, 6))).shape((4, 6)) == (4, 3)
    assert Slice("a").shape((4, 6)) == (4, 6)
    assert Slice("a", 0, ((1, 2),)).shape((4, 6)) == (1, 6)
