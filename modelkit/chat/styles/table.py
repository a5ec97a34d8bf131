"""The table of output styles, `templates/styles.json`: one row for each way of writing that models have.

The markers are facts about published models, checked against their templates; where no template was at hand
they follow llama.cpp's tests/test-chat.cpp, mlx-lm's tool_parsers (both MIT) and Ollama's model/parsers.
"""

import json
from functools import cache

from modelkit.chat.builtin import read_template
from modelkit.chat.styles.style import Fingerprint, Style


@cache
def styles() -> tuple[Style, ...]:
    """All rows, the most special first: a template has the first row whose fingerprint it bears."""
    rows = json.loads(read_template("styles.json"))
    return tuple(Style.read(row, f"styles.json[{number}]") for number, row in enumerate(rows))


@cache
def _named() -> dict[str, Style]:
    named: dict[str, Style] = {}
    for style in styles():
        for name in (style.name, *aliases(style)):
            named.setdefault(name, style)
    return named


def aliases(style: Style) -> tuple[str, ...]:
    """Other names that PARSER takes for it: those of Ollama's parsers."""
    return tuple((style.extra or {}).get("aliases", ()))


def style_named(name: str) -> Style | None:
    """By a row's name or one of its aliases, in any case; None for an unknown one."""
    return _named().get(name.strip().lower())


def fingerprinted(source: str) -> Style | None:
    """The first row one of whose fingerprints a template bears."""
    return next((row for row in styles() if any(_bears(source, one) for one in row.fingerprints)), None)


def _bears(source: str, one: Fingerprint) -> bool:
    return all(text in source for text in one.has) and not any(text in source for text in one.lacks)
