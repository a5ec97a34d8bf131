"""A capital in the shape of an array is one that all know, or is explained in the same file."""

import re
from pathlib import Path

import pytest

RUNTIME = Path(__file__).resolve().parents[2] / "runtime"
KNOWN = set("BLTDHEV")
"""Those of the docstring of `runtime`."""
_TEXTS = re.compile(r'"""(?P<text>.*?)"""|#(?P<comment>[^\n]*)', re.DOTALL)
_SHAPE = re.compile(r"\[[^\[\]]*,[^\[\]]*\]")
_LETTER = re.compile(r"(?<![\w.\"'`])[A-Z](?![\w\"'`(])")


def unexplained(source: str) -> set[str]:
    """Letters in shapes of its texts that stand nowhere else in them."""
    texts = "\n".join(found["text"] or found["comment"] or "" for found in _TEXTS.finditer(source))
    inside = {letter for shape in _SHAPE.findall(texts) for letter in _LETTER.findall(shape)}
    return inside - set(_LETTER.findall(_SHAPE.sub("", texts))) - KNOWN


def test_letters_of_shapes_are_explained() -> None:
    files = {path.relative_to(RUNTIME): unexplained(path.read_text()) for path in RUNTIME.rglob("*.py")}
    assert {str(path): letters for path, letters in files.items() if letters} == {}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("x [B, L, Q]", {"Q"}), ("x [B, L, Q] of Q queries", set()), ("[B, L] and [K, 1]", {"K"})],
)
def test_the_check_sees_what_it_looks_for(text: str, wanted: set[str]) -> None:
    assert unexplained(f'"""{text}"""') == wanted
    assert unexplained(f"# {text}") == wanted


def test_the_package_says_what_all_know() -> None:
    said = (RUNTIME / "__init__.py").read_text()
    assert set(_LETTER.findall(said.partition("Shapes of arrays")[2].partition("`modelkit`")[0])) == KNOWN
