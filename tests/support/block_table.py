"""The table of GGUF types in docs/import.md, made of the forms that packages keep them in.

python -m tests.support.block_table
"""

from pathlib import Path

from runtime.blocks.forms import EXACT_IN_F32, NEAREST, REPACKED, Form
from runtime.blocks.types import BlockType
from runtime.quant import FORMATS
from tests.support import marked
from tests.support.blocks import PACKED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "import.md"
BEGIN, END = "<!-- types: python -m tests.support.block_table -->\n", "<!-- types end -->\n"
HEAD = "| type | bits | in the package | bits there | exact | packed products |\n" + "|---" * 6 + "|\n"


def table() -> str:
    return HEAD + "".join(map(_line, PACKED))


def _line(kind: BlockType) -> str:
    form = REPACKED.get(kind.name)
    if form is not None:
        cells = (_name(form), f"{form.bits_per_weight:.4g}", "yes", "the same")
    elif kind.name in EXACT_IN_F32:
        twin = EXACT_IN_F32[kind.name]
        cells = ("its blocks", f"{kind.bits_per_weight:.4g}", "yes", f"{_name(twin)}, float32 scales: exact")
    else:
        cells = ("its blocks", f"{kind.bits_per_weight:.4g}", "yes", f"{_name(NEAREST)}: the nearest")
    return f"| {kind.name.upper()} | {kind.bits_per_weight:.4g} | {' | '.join(cells)} |\n"


def _name(form: Form) -> str:
    wanted = (form.bits, form.group_size, form.mode)
    return next(row.name for row in FORMATS if (row.bits, row.group_size, row.mode) == wanted)


def section(page: str) -> str:
    return marked.section(page, BEGIN, END)


if __name__ == "__main__":
    marked.rewrite(PAGE, BEGIN, END, table())
