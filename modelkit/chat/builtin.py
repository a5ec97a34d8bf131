"""The chat templates that modelkit brings, for models that have none.

They lie in `templates/`: beside the packages in a checkout, inside `modelkit` in an installed wheel.
`index.json` says for each what it is for and which texts end the assistant's turn.
"""

import json
from functools import cache
from pathlib import Path

from modelkit.errors import TemplateError
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class BuiltinTemplate:
    """A template that comes with modelkit."""

    name: str
    description: str
    """What it is for, in one sentence."""
    stop: tuple[str, ...]
    """Stop strings that go with it: models made for it do not always end with an EOS token."""
    source: str
    """The template, in jinja."""


@cache
def builtin_templates() -> dict[str, BuiltinTemplate]:
    """All of them, by name. Raises TemplateError when the installation lacks its `templates` folder."""
    index = json.loads(read_template("index.json"))
    return {
        name: BuiltinTemplate(
            name=name,
            description=entry["description"],
            stop=tuple(entry["stop"]),
            source=read_template(f"{name}.jinja"),
        )
        for name, entry in index.items()
    }


def read_template(name: str) -> str:
    """A file of the folder `templates`. Raises TemplateError when the installation lacks it."""
    return (_folder() / name).read_text(encoding="utf-8")


def _folder() -> Path:
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "templates", package.parent / "templates"):
        if (folder / "index.json").is_file():
            return folder
    raise TemplateError(
        "modelkit's own templates are missing from this installation", hint="Install modelkit-mlx again."
    )
