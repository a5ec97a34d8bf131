"""Schemas of several tools tried in one grammar: most of what it takes to compile one is the same for all.

Each stands behind a text of its own there, so that all that is found of one by itself (`matchers.made_of`) is
found of it here: what is wrong when it is compiled, at its first token and behind that. What is taken so is
taken alone too, as the limits are those of one.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from modelkit.errors import RequestError
from modelkit.grammars.compiling.matchers import LONGEST_FORCED, behind_a_token, definition_of, started
from modelkit.grammars.forms import Form
from modelkit.grammars.schemas.loosening import counted

if TYPE_CHECKING:
    import llguidance


def accepted_together(native: "llguidance.LLTokenizer", schemas: Sequence[str]) -> list[str]:
    """Those that are certainly taken; of the others nothing is known. Each is the text of a schema."""
    found = {text: its for text in schemas if (its := _definition(text)) is not None}
    return _taken(native, [*found], [*found.values()])


def _definition(text: str) -> str | None:
    """What stands for it in a grammar; None for one that is looked at by itself."""
    if counted(text):  # its patterns are tried one by one
        return None
    try:
        definition = json.loads(definition_of(Form("parameters", "schema", text), {}))
    except RequestError:
        return None
    return json.dumps(definition["grammars"][0]["json_schema"])


def _taken(native: "llguidance.LLTokenizer", texts: Sequence[str], definitions: Sequence[str]) -> list[str]:
    if len(texts) < 2:
        return []
    ways = " | ".join(f'"{place}:" r{place}' for place in range(len(texts)))
    rules = "\n".join(f"r{place}: %json {one}" for place, one in enumerate(definitions))
    start = started(native, json.dumps({"grammars": [{"lark_grammar": f"start: {ways}\n{rules}\n"}]}))
    if start.is_error():
        half = len(texts) // 2
        halves = slice(half), slice(half, None)
        return [one for its in halves for one in _taken(native, texts[its], definitions[its])]
    return [one for place, one in enumerate(texts) if _goes_on(native, start, f"{place}:")]


def _goes_on(native: "llguidance.LLTokenizer", start: "llguidance.LLMatcher", front: str) -> bool:
    at = start.deep_copy()
    at.consume_tokens(native.tokenize_str(front))
    if not at.is_error():
        at.compute_bitmask()
    if at.is_error() or len(at.compute_ff_bytes()) > LONGEST_FORCED:
        return False
    return behind_a_token(native, at) is None
