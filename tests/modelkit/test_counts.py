"""Large counts are written in one way, `3,000,014 tokens`, wherever a sentence is made of one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COUNTED = re.compile(r" (more )?(tokens|bytes|characters|ids|files|tensors|texts|messages)\b")

# Sentences of other programs, whose clients read the numbers in them.
THEIRS = ("modelkit/server/openai/model_choice.py", "modelkit/server/anthropic/answers.py")
# Numbers of a config, which are shown as they stand there.
SHOWN = "modelkit/source/gguf/architectures/"


def _bare_counts(source: str) -> Iterator[int]:
    """Lines of f-strings in which a value without a format stands before what it counts."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            for value, text in zip(node.values, node.values[1:], strict=False):
                if not (isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant)):
                    continue
                if value.format_spec is None and value.conversion == -1 and COUNTED.match(str(text.value)):
                    yield node.lineno


def test_every_count_has_separators() -> None:
    assert [*_bare_counts('f"{size} tokens" f"{size:,} bytes" f"{name!r} files"')] == [1]
    found = [
        f"{name}:{line}"
        for folder in ("modelkit", "runtime")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not (name := path.relative_to(ROOT).as_posix()).startswith((*THEIRS, SHOWN))
        for line in _bare_counts(path.read_text(encoding="utf-8"))
    ]
    assert not found
