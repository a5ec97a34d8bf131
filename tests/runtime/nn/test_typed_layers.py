"""The call that every model makes, layer(x, step, cache), is checked: nothing in it is Any.

basedpyright does the checking and is silent about what is Any; so no part of a layer may be.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

RUNTIME = Path(__file__).resolve().parents[3] / "runtime"
FILES = sorted(path for room in ("nn", "models") for path in (RUNTIME / room).rglob("*.py"))
MEMORY = ("cache", "caches", "memory")


def untyped(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg in MEMORY and _says_any(node.annotation):
            yield f"line {node.lineno}: parameter {node.arg}"
        if isinstance(node, ast.AnnAssign) and _says_any(node.annotation):
            target = node.target
            if isinstance(target, ast.Attribute):
                yield f"line {node.lineno}: attribute {target.attr}"


def _says_any(annotation: ast.expr | None) -> bool:
    """Any itself, or a sequence or choice of it; a mapping of a config's raw values is not meant."""
    text = "" if annotation is None else ast.unparse(annotation).strip("'")
    return text in ("Any", "Sequence[Any]", "list[Any]", "Any | None", "Sequence[Any | None]")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(RUNTIME)))
def test_parts_and_memory_of_a_layer_are_typed(path: Path):
    assert list(untyped(ast.parse(path.read_text()))) == []


def test_the_check_sees_what_it_looks_for():
    source = """
class Block:
    def __init__(self, attention, config: dict[str, Any]):
        self.self_attn: Any = attention
        self.config: dict[str, Any] = config
    def __call__(self, x, step, cache: Any, caches: Sequence[Any]): ...
"""
    assert sorted(untyped(ast.parse(source))) == [
        "line 4: attribute self_attn",
        "line 6: parameter cache",
        "line 6: parameter caches",
    ]
