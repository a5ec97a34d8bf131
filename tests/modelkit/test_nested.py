"""JSON that is nested deeper than Python's stack, in files of others and in what a model says."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from modelkit.cli import export
from modelkit.cli.options.forms import is_whole
from modelkit.errors import StoreError
from modelkit.store.layout import Layout
from modelkit.store.outline import FILE, outlined
from modelkit.store.slices import damaged_slices

NESTED = b"[" * 50_000


def _package(folder: Path, *names: str) -> Any:
    files = {name: folder / str(place) for place, name in enumerate(names)}
    for path in files.values():
        path.write_bytes(NESTED)
    return SimpleNamespace(name="story", files=files)


def test_a_slice_is_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "slices" / ("a" * 64)
    folder.mkdir(parents=True)
    (folder / ("b" * 64)).write_bytes(len(NESTED).to_bytes(8, "little") + NESTED)
    assert damaged_slices(Layout(tmp_path), lambda _: None) == [folder / ("b" * 64)]


def test_an_outline_is_no_sound_one(tmp_path: Path) -> None:
    package = _package(tmp_path, FILE, "outline/manifest.json")
    with pytest.raises(StoreError, match=r"outline\.json of story is not valid JSON: it is nested too deep"):
        outlined(package)


def test_a_config_says_nothing_of_what_mlx_lm_makes_of_an_export(tmp_path: Path) -> None:
    package = _package(tmp_path, "config.json")
    assert export._json(package, "config.json") == {}  # pyright: ignore[reportPrivateUsage] -- its callers load all


def test_an_answer_is_not_whole() -> None:
    assert not is_whole({"format": "json"}, NESTED.decode())
