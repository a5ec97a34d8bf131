"""A folder that is being planned: config.json, and for each file the tensors it will hold, by name.

Fixes change a copy of it, so that one that turns out impossible has changed nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from modelkit.json_text import is_number
from modelkit.pack.mlx_folder.shard import Piece, Plain
from modelkit.pack.mlx_lm.pieces import CannotFix
from modelkit.source.tensor import TensorInfo
from runtime.config.text import TEXT_BLOCKS, levels

PARTS = (".weight", ".scales", ".biases", ".bias")
QUANTIZATION = ("quantization", "quantization_config")


class MutableFolder:
    """Mutable; `copy` before a change that may fail."""

    def __init__(self, config: Mapping[str, Any], files: Mapping[str, Mapping[str, Piece]]) -> None:
        self.config: dict[str, Any] = deepcopy(dict(config))
        self.files = {name: dict(pieces) for name, pieces in files.items()}

    def copy(self) -> "MutableFolder":
        return MutableFolder(self.config, self.files)

    @property
    def block(self) -> dict[str, Any]:
        """The text model's part of the config."""
        return levels(self.config)[-1][1]

    def names(self) -> list[str]:
        """Of all tensors."""
        return [output.name for _, piece in self._all() for output in piece.outputs]

    def modules(self, *ends: str) -> list[str]:
        """The modules whose weights' names end so; `.weight` left out on both sides."""
        whole = tuple(f"{end}.weight" for end in ends)
        return [name.removesuffix(".weight") for name, _ in self._all() if name.endswith(whole)]

    def find(self, name: str) -> TensorInfo | None:
        """The package's tensor of that name. Raises CannotFix where its bytes are turned on the way."""
        piece = next((files[name] for files in self.files.values() if name in files), None)
        if piece is not None and not isinstance(piece, Plain):
            raise CannotFix(name)
        return None if piece is None else piece.tensor

    def tensor(self, name: str) -> TensorInfo:
        """Raises CannotFix where there is none, too."""
        found = self.find(name)
        if found is None:
            raise CannotFix(name)
        return found

    def put(self, name: str, *pieces: Piece) -> None:
        """These in the place of the tensor `name`. Raises CannotFix where there is none."""
        self.beside(name, *pieces, gone=name)

    def beside(self, name: str, *pieces: Piece, gone: str | None = None) -> None:
        """These in the file of the tensor `name`."""
        for file, held in self.files.items():
            if name in held:
                made = {piece.outputs[0].name: piece for piece in pieces}
                self.files[file] = {**{old: piece for old, piece in held.items() if old != gone}, **made}
                return
        raise CannotFix(name)

    def drop(self, gone: Callable[[str], bool]) -> None:
        for file, held in self.files.items():
            self.files[file] = {name: piece for name, piece in held.items() if not gone(name)}

    def rename(self, fresh: Callable[[str], str]) -> None:
        """Tensors, and modules in config.json's quantization. Raises CannotFix where two would be one."""
        for file, held in self.files.items():
            self.files[file] = {
                fresh(name): piece if fresh(name) == name else piece.called(fresh(name))
                for name, piece in held.items()
            }
        if sum(map(len, self.files.values())) != len(set().union(*self.files.values())):
            raise CannotFix("names")
        self.rename_modules(lambda module: fresh(f"{module}.weight").removesuffix(".weight"))

    def rename_modules(self, fresh: Callable[[str], str]) -> None:
        """In config.json's quantization alone."""
        for block in self._quantization():
            entries = {key: block.pop(key) for key in list(block) if isinstance(block[key], dict | bool)}
            block.update({fresh(module): entry for module, entry in entries.items()})

    def form_of(self, module: str) -> dict[str, Any]:
        """How it is packed: group_size, bits and mode. Raises CannotFix."""
        for block in self._quantization():
            entry = block.get(module, block)
            form = {key: entry[key] for key in ("group_size", "bits", "mode") if key in entry}
            if len(form) >= 2:
                return {"mode": "affine", **form}
        raise CannotFix(module)

    def repeat(self, module: str, again: str) -> None:
        """Give a module's tensors a second time, under another name."""
        for file, held in self.files.items():
            made = {
                again + part: held[module + part].called(again + part)
                for part in PARTS
                if module + part in held
            }
            self.files[file] = {**held, **made}
        for block in self._quantization():
            if module in block:
                block[again] = deepcopy(block[module])

    def share_form(self, module: str, others: Iterable[str]) -> None:
        """What config.json's quantization says of one module is said of these in its place."""
        for block in self._quantization():
            if module in block:
                entry = block.pop(module)
                block.update({other: deepcopy(entry) for other in others})

    def say(self, **fields: Any) -> None:
        """Set fields of the text model, and of the whole config where it has them too."""
        self.block.update(fields)
        self.config.update({key: value for key, value in fields.items() if key in self.config})

    def wrap(self, kind: str, *kept: str) -> None:
        """Make the config the text block of a wrapper of that type; `kept` are the wrapper's own fields."""
        outer = {key: self.config[key] for key in (*QUANTIZATION, *kept) if key in self.config}
        inner = {key: value for key, value in self.config.items() if key not in QUANTIZATION}
        self.config = {**outer, "model_type": kind, TEXT_BLOCKS[0]: inner}

    def number(self, field: str) -> float:
        """Of the text model. Raises CannotFix."""
        value = self.block.get(field)
        if not is_number(value):
            raise CannotFix(field)
        return value

    def count(self, field: str) -> int:
        return int(self.number(field))

    def floats(self) -> str:
        """The type of what is not packed: that of the first vector."""
        for _, piece in self._all():
            output = piece.outputs[0]
            if len(output.shape) == 1 and output.dtype in ("F32", "F16", "BF16"):
                return output.dtype
        return "F32"

    def nbytes(self, module: str) -> int:
        """Of all that it has."""
        named = {module + part for part in PARTS}
        outputs = (output for _, piece in self._all() for output in piece.outputs)
        return sum(output.nbytes for output in outputs if output.name in named)

    def shape(self, name: str) -> tuple[int, ...]:
        """Raises CannotFix."""
        for _, piece in self._all():
            for output in piece.outputs:
                if output.name == name:
                    return output.shape
        raise CannotFix(name)

    def _all(self) -> Iterator[tuple[str, Piece]]:
        for held in self.files.values():
            yield from held.items()

    def _quantization(self) -> Iterator[dict[str, Any]]:
        for key in QUANTIZATION:
            block: Any = self.config.get(key)
            if isinstance(block, dict):
                yield block
