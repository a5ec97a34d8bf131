"""The model classes of mlx-lm that are run: those whose answers are stored next to transformers' own.

A kind says which fields transformers reads and which of their values the class was proven with
(tests/data/foreign), how they are spelled for the class, and what has to be mended in it. A class without a
stored reference is in no table and is refused: it may be right, but nobody has looked.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from runtime.errors import UnsupportedModel, shown
from runtime.models.checkpoint import PLAIN, Checkpoint
from runtime.models.foreign.fields import Field, Raw, read_fields
from runtime.models.foreign.rope import Ropes, read_rope
from runtime.records import dataclass

Values = dict[str, Any]
LAYERS = 4096
"""Modules are made one by one, so a file may not ask for any number of them."""


def _as_read(values: Values) -> Values:
    return {}


def _nothing(model: Any, values: Values) -> Any:
    return model


@dataclass(frozen=True, slots=True, eq=False)  # one object each, so that it can key a cache
class Kind:
    """One of mlx-lm's model files, and which configs it may run."""

    file: str
    """Its name in mlx-lm's `models`."""
    types: tuple[str, ...]
    """model_type in config.json."""
    classes: tuple[str, ...]
    """architectures[0] in config.json."""
    fields: Mapping[str, Field]
    """What transformers reads."""
    ropes: Ropes | None = None
    """The same of rotations; None where positions are no rotations."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other names of fields that transformers reads."""
    length: str = "max_position_embeddings"
    """The field that bounds sequences."""
    spell: Callable[[Values], Values] = _as_read
    """Values read -> what the class calls otherwise, or refuses by name."""
    mend: Callable[[Any, Values], Any] = _nothing
    """An instance of the class -> one that is right; it may be the same, with parts changed."""
    spare: tuple[str, ...] = ()
    """Ends of names of tensors that carry nothing."""
    ragged: bool = True
    """Rows may stand at different positions."""
    checkpoint: Checkpoint = PLAIN
    """What is particular to its files."""

    @property
    def who(self) -> str:
        return f"mlx-lm's {self.file}"

    def read(self, raw: Raw) -> Values:
        """All that the class is given and `mend` needs. Raises UnsupportedModel."""
        values = read_fields(raw, self.fields, self.aliases, self.who)
        if self.ropes is not None:
            values["rope"] = read_rope(raw, self.ropes, self.who)
        return {"model_type": self.types[0], **values, **self.spell(values)}


def same(values: Values, name: str, wanted: int, why: str) -> None:
    """Raise UnsupportedModel where a field is not what the class takes it for."""
    if values[name] != wanted:
        raise UnsupportedModel(f"config.json: {name} is {shown(values[name])}, expected {wanted}: {why}")
