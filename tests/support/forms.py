"""A form, and where an answer stands in one, for a tokenizer of all bytes."""

from pathlib import Path
from typing import Any

from modelkit.grammars.compiling.compiler import Grammars
from modelkit.grammars.forms import Form
from modelkit.tokenizer import load_tokenizer
from tests.support.tiny import write_tokenizer

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["cat", "dog"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}


def matcher_of(folder: Path, form: Form, stops: frozenset[int]) -> Any:
    write_tokenizer(folder)
    tokenizer = load_tokenizer({"tokenizer.json": folder / "tokenizer.json"})
    return Grammars(tokenizer, 320, stops).compile(form).matcher()
