"""The table of GGUF architectures in docs/import.md, made of the rows that read and write them.

python -m tests.support.gguf_table
"""

from pathlib import Path

from modelkit.source.gguf.architectures import ROWS
from modelkit.source.gguf.architectures.architecture import Architecture
from tests.support import marked

PAGE = Path(__file__).resolve().parents[2] / "docs" / "import.md"
BEGIN, END = "<!-- architectures: python -m tests.support.gguf_table -->\n", "<!-- architectures end -->\n"
HEAD = "| `general.architecture` | `model_type` | both ways | what comes back |\n|---|---|---|---|\n"


def table() -> str:
    return HEAD + "".join(_line(row) for row in sorted(ROWS, key=lambda row: row.name))


def _line(row: Architecture) -> str:
    kinds = ", ".join(dict.fromkeys(kind.model_type for kind in row.kinds))
    both = "yes" if row.written else "read"
    return f"| {row.name} | {kinds} | {both} | {row.exact} |\n"


def section(page: str) -> str:
    return marked.section(page, BEGIN, END)


if __name__ == "__main__":
    marked.rewrite(PAGE, BEGIN, END, table())
