"""File paths in manifests: only those that are the same, harmless relative path on every system."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.errors import StoreError
from modelkit.store.paths import check_path, check_tree


@pytest.mark.parametrize(
    "path", ["config.json", "draft/model-00001-of-00002.safetensors", "adapters/1/a.b", "modèle"]
)
def test_plain_relative_paths_pass(path: str):
    assert check_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "/etc/passwd", ".", "..", "../x", "a/../b", "a/./b", "a//b", "a/", "./a", "~/x/.."),
        *(
            "C:\\x",
            "C:x",
            "a\\b",
            "a\x00b",
            "a\nb",
            "\x1b[2J",
            "a\u202eb",
            "mode\u0300le",
            "a*",
            "a?b",
            "a|b",
        ),
        *("x" * 256, "é" * 128, "/".join("abcdefghi"), "a.", "a ", " a", "dir./x", "\ud800"),
        *(None, 7, ["a"]),
    ],
)
def test_anything_that_could_lead_elsewhere_is_refused(path: object):
    with pytest.raises(StoreError) as caught:
        check_path(path)
    assert caught.value.message.isprintable()
    assert "NoneType" not in caught.value.message


@pytest.mark.parametrize(
    "paths", [["a", "a"], ["A/x", "a/X"], ["a", "a/b"], ["A", "a/b"], ["straße", "STRASSE"]]
)
def test_files_that_cannot_stand_side_by_side_are_refused(paths: list[str]):
    with pytest.raises(StoreError):
        check_tree(paths)


@given(st.text(alphabet="ab./\\\x00~:", max_size=12))
def test_no_path_that_passes_leaves_its_folder(path: str):
    try:
        parts = check_path(path).split("/")
    except StoreError:
        return
    assert all(part not in ("", ".", "..") for part in parts)
