"""The parameter tables of docs/modelfile.md, from the tables that the program follows.

python -m tests.support.parameter_docs    rewrites them in place
"""

import json
import re
from pathlib import Path

from modelkit.modelfile import PARAMETERS, REFUSED
from modelkit.modelfile.parameter_table import AS_HERE, PASSED_OVER, Parameter

PAGE = Path(__file__).resolve().parents[2] / "docs" / "modelfile.md"
_PLACE = re.compile(r"(<!-- parameters -->\n).*?(<!-- end -->)", re.DOTALL)


def tables() -> str:
    """Two Markdown tables: what each parameter means, and why some names of Ollama's are refused."""
    lines = ["| name | value | default | |", "|---|---|---|---|"]
    for row in PARAMETERS.values():
        lines.append(f"| `{row.name}` | {row.expected} | {_default(row)} | {row.help} |")
    lines += ["", "| refused | because |", "|---|---|"]
    lines += [f"| `{name}` | {why}{_noted(name)} |" for name, why in REFUSED.items()]
    return "\n".join(lines) + "\n"


def _default(row: Parameter) -> object:
    if isinstance(row.default, tuple):
        return " ".join(f"`{json.dumps(text)}`" for text in row.default) or "none"
    return "decided at run time" if row.default is None else row.default


def _noted(name: str) -> str:
    if name in PASSED_OVER:
        return " (in a Modelfile: a note)"
    return f" (in a Modelfile, with {AS_HERE[name][0]}: a note)" if name in AS_HERE else ""


def with_tables(page: str) -> str:
    return _PLACE.sub(lambda found: found[1] + tables() + found[2], page)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
