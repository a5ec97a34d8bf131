"""Metadata and config while one is made from the other: what was read is remembered, what is wrong is
refused.

Keys are those of the file's architecture, without its name in front (`context_length` for
`llama.context_length`); a key that begins with a dot is a whole name (`.xielu.eps`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.kinds import BY_LAYER, wrong
from modelkit.source.gguf.architectures.moves import Shape
from modelkit.source.gguf.architectures.numbers import shortest
from runtime.quoting import quoted


class Reading:
    """A GGUF file on its way to a config."""

    def __init__(
        self,
        architecture: str,
        metadata: Mapping[str, Any],
        shapes: Mapping[str, Shape],
        values: Callable[[str], Sequence[float]],
        label: str,
    ) -> None:
        """values: the numbers of a small float tensor."""
        self.architecture = architecture
        self.shapes = shapes
        self.values = values
        self.config: dict[str, Any] = {}
        self.notes: list[str] = []
        self.used_tensors: set[str] = set()
        """Those that say something about the config and are no weights."""
        self.constants: dict[str, tuple[Shape, tuple[float, ...]]] = {}
        """Tensors of the checkpoint whose numbers stand in the metadata."""
        self.dense: list[str] = []
        """Those that are Dense modules behind pooling, in order."""
        self.all_head = False
        """Are the blocks of the file a head's, and its layers therefore?"""
        self._metadata = metadata
        self._label = label
        self._used: set[str] = set()

    def full(self, key: str) -> str:
        return key[1:] if key.startswith(".") else f"{self.architecture}.{key}"

    def get(self, key: str, kind: type | tuple[type, ...] | None = None) -> Any:
        """The value of a key, None where it is not there. Raises MalformedFile for one of another kind."""
        name = self.full(key)
        self._used.add(name)
        value = self._metadata.get(name)
        if value is None:
            return None
        if key in BY_LAYER and isinstance(value, list | tuple) and len(value) == self.blocks:
            value = value[0] if all(one == value[0] for one in value) else value
        said = wrong(key, value)
        if said is not None:
            self.refuse(f"`{name}` {said}")
        if type(value) is float and not math.isfinite(value):
            self.refuse(f"`{name}` is {value}; a number was expected")
        if isinstance(value, (list, tuple)) and kind is None:
            return [shortest(item) if type(item) is float else item for item in value]
        if kind is not None and type(value) not in (kind if isinstance(kind, tuple) else (kind,)):
            self.refuse(f"`{name}` is {quoted(value)}, which is not of its kind")
        return shortest(value) if type(value) is float else value

    def count(self, key: str, default: int | None = None) -> int:
        """A natural number. Raises MalformedFile where it is missing and no default is known."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        if type(value) is not int or value < 0:
            self.refuse(f"`{self.full(key)}` is {quoted(value)}; a number was expected")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key)
        value = default if value is None else value
        if value is None or type(value) not in (int, float):
            self.refuse(f"`{self.full(key)}` is {quoted(value)}; a number was expected")
        return value

    def each_number(self, key: str) -> list[float] | None:
        """As `each`, of numbers; None where it is missing."""
        told = self.get(key)
        if told is None:
            return None
        listed = told[: self.layers] if isinstance(told, list) else [told] * self.layers
        if len(listed) < self.layers or any(type(one) not in (int, float) for one in listed):
            self.refuse(f"`{self.full(key)}` is {quoted(told)}; a number for each layer was expected")
        return [float(one) for one in listed]

    def each(self, key: str) -> list[int]:
        """A natural number for each of the model's layers: said one by one, or once for all. What a file says
        of further blocks is left out. Raises MalformedFile where it is missing.
        """
        told = self.get(key)
        if not isinstance(told, list):
            return [self.count(key)] * self.layers
        if len(told) < self.layers or any(type(one) is not int or one < 0 for one in told):
            self.refuse(f"`{self.full(key)}` is {quoted(told)}; a number for each layer was expected")
        return told[: self.layers]

    def skip(self, *keys: str) -> None:
        """Keys that say nothing which is not said elsewhere."""
        self._used.update(self.full(key) for key in keys)

    def unread(self) -> list[str]:
        """Keys of the architecture that nothing has looked at."""
        prefix = f"{self.architecture}."
        return [key for key in self._metadata if key.startswith(prefix) and key not in self._used]

    @property
    def blocks(self) -> int:
        """All blocks of the file, those of draft heads included."""
        return self.count("block_count")

    @property
    def layers(self) -> int:
        """Blocks of the model itself."""
        heads = self.count("nextn_predict_layers", 0)
        if self.all_head:
            return self.blocks
        if not 0 <= heads < self.blocks:
            self.refuse(f"{heads} of {self.blocks} blocks are said to be draft heads")
        return self.blocks - heads

    def has(self, layer: int, name: str) -> bool:
        """Is there a tensor of that name in a block, whatever its ending?"""
        return any(f"blk.{layer}.{name}{leaf}" in self.shapes for leaf in (".weight", ".bias", ""))

    def layers_with(self, name: str, told: str = "", *, by_zero: bool = False) -> list[bool]:
        """Which layers have such a tensor. told: a key whose list says so again, by true or `by_zero`.

        Raises MalformedFile where the two differ.
        """
        found = [self.has(layer, name) for layer in range(self.layers)]
        listed = self.get(told) if told else None
        if isinstance(listed, list) and [bool(one) != by_zero for one in listed[: self.layers]] != found:
            self.refuse(f"`{self.full(told)}` names other layers than the tensors do")
        return found

    def rows(self, layer: int, name: str) -> int:
        """Rows of a matrix of a block; 0 where it is not there."""
        return self.shapes.get(f"blk.{layer}.{name}.weight", (0,))[0]

    def refuse(self, sentence: str) -> NoReturn:
        raise MalformedFile(f"{self._label}: {sentence}")

    def unsupported(self, sentence: str, hint: str | None = None) -> NoReturn:
        raise UnsupportedSource(f"{self._label}: {sentence}", hint=hint)


class Writing:
    """A config on its way to metadata."""

    def __init__(
        self,
        architecture: str,
        facts: Facts,
        shapes: Mapping[str, Shape],
        values: Callable[[str], Sequence[float]],
        label: str,
    ) -> None:
        """values: the numbers of a small float tensor of the checkpoint."""
        self.architecture = architecture
        self.facts = facts
        self.shapes = shapes
        self._values = values
        self.metadata: dict[str, Any] = {}
        self.extra: dict[str, tuple[float, ...]] = {}
        """Tensors that follow from the config: name -> numbers, to be written as float32."""
        self.notes: list[str] = []
        self.otherwise: list[str] = []
        """Fields of the runtime's config that an import will not have, as a note says."""
        self.heads = 0
        """Blocks of draft heads behind the model's own."""
        self._in_metadata: set[str] = set()
        self._label = label

    def put(self, key: str, value: Any) -> None:
        name = key[1:] if key.startswith(".") else f"{self.architecture}.{key}"
        self.metadata[name] = value

    def numbers(self, tensor: str) -> Sequence[float]:
        """The numbers of a tensor that goes into the metadata."""
        if tensor not in self.shapes:
            self.refuse(f"the tensor {tensor} is missing")
        self._in_metadata.add(tensor)
        return self._values(tensor)

    def in_metadata(self, name: str) -> bool:
        """Has this tensor become a list in the metadata?"""
        return name in self._in_metadata

    def refuse(self, sentence: str) -> NoReturn:
        raise UnsupportedSource(f"{self._label}: {sentence}")
