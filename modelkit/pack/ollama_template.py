"""The template that a package of Ollama's brings. One in jinja is the model's; one in Go's language, made for
a program without jinja, is used where the model's own files have none, as those of 2023 do.
"""

import re
from collections.abc import Sequence

from modelkit.chat.find import check_explicit, find_template
from modelkit.errors import TemplateError
from modelkit.modelfile import Directive
from modelkit.source.tree import Files

# What Ollama gives a model that it knows no template for: the prompt as it is.
_NONE = re.compile(r"\s*\{\{-?\s*\.Prompt\s*-?\}\}\s*")


def with_needed_template(
    said: Sequence[Directive], files: Files
) -> tuple[tuple[Directive, ...], tuple[str, ...]]:
    """The lines that came with a model of these files, without a TEMPLATE that is not needed or cannot be
    read, and notes on what is left out.
    """
    kept, notes = list[Directive](), list[str]()
    for one in said:
        left_out = _left_out(one.value, files) if one.keyword == "TEMPLATE" else None
        if left_out is None:
            kept.append(one)
        elif left_out:
            notes.append(left_out)
    return tuple(kept), tuple(notes)


def _left_out(template: str, files: Files) -> str | None:
    """Why the template is not used, empty where that need not be told; None where it is used."""
    if "{%" not in template:
        if _has_template(files):
            return "its template is one of Ollama's (Go); the one in the model's own file is used"
        if _NONE.fullmatch(template):
            return ""
    try:
        check_explicit(template)
    except TemplateError as error:
        return f"its template is left out: {error.message}"
    return None


def _has_template(files: Files) -> bool:
    """Have they one that can be read?"""
    try:
        return find_template(files) is not None
    except TemplateError:
        return False
