"""An adapter as a package holds it: `adapters/NAME/adapter_config.json` and `adapter.safetensors`.

One form whatever it came from: tensors by the names of the network's modules
(`runtime.nn.adapters.low_rank`), numbers as they were. The config says of which form's version it is, what
the pairs are multiplied by, and what the original said for people to read. Canonical: the same adapter for
the same base gives the same bytes.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.json_text import is_finite
from modelkit.source.safetensors import Header, read_header
from modelkit.source.strict_json import read_json
from modelkit.source.tensor import FLOATS
from modelkit.source.tree import Files, subtree
from modelkit.store.canonical import canonical
from runtime.quoting import quoted, shown
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.pack.adapters.words import Words
    from modelkit.source.adapters.value import AdapterSource
    from runtime.nn.adapters.low_rank import LowRanks

FOLDER = "adapters"
CONFIG = "adapter_config.json"
WEIGHTS = "adapter.safetensors"
VERSION = 1

_PAIR = (".lora_down", ".lora_up", ".lora_magnitude", ".lora_bias")
_MAX_ADAPTERS = 1000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
"""NAME+ADAPTER=SCALE can be written with it."""


@dataclass(frozen=True, slots=True)
class StoredAdapter:
    """One adapter of a package, its header and config checked."""

    name: str
    path: Path
    """Of its tensors."""
    config: Path
    """Its adapter_config.json."""
    header: Header
    scales: Mapping[str, float]
    """By module, where it is not `scale`."""
    scale: float
    base: str | None
    """What it says it was trained on."""
    kind: str
    """"peft", "mlx-lm" or "gguf": what it was made from."""
    facts: Mapping[str, Any]

    @property
    def nbytes(self) -> int:
        return self.header.identity.nbytes

    @property
    def rank(self) -> int:
        """The largest of its pairs'."""
        downs = (tensor for tensor in self.header.tensors if tensor.name.endswith(".lora_down"))
        return max((tensor.shape[-1] for tensor in downs), default=0)

    @property
    def parameters(self) -> set[str]:
        """Those of the network that it changes."""
        names = {tensor.name for tensor in self.header.tensors}
        pairs = {name.removesuffix(".lora_down") for name in names if name.endswith(".lora_down")}
        found = {f"{module}.weight" for module in pairs}
        found |= {f"{module}.bias" for module in pairs if f"{module}.lora_bias" in names}
        found |= {name.removesuffix(".rows") for name in names if name.endswith(".rows")}
        return found | {name for name in names if not name.endswith((*_PAIR, ".ids", ".rows"))}

    @property
    def unties(self) -> bool:
        """May it say one thing of the embedding and another of a head that is tied to it?"""
        names = [tensor.name for tensor in self.header.tensors if tensor.name.startswith("lm_head.")]
        if any(not name.endswith((".ids", ".rows")) for name in names):
            return True
        return bool(names) and self._rows_apart()

    def _rows_apart(self) -> bool:
        """Has the head rows that no table has?"""
        rows = dict(self.load().rows)
        ids = rows.pop("lm_head.weight").ids.tolist()
        return all(one.ids.tolist() != ids for one in rows.values())

    @property
    def modules(self) -> int:
        """How many it has pairs for."""
        return sum(tensor.name.endswith(".lora_down") for tensor in self.header.tensors)

    def load(self) -> "LowRanks":
        """Its numbers, as lazy arrays."""
        from runtime.nn.adapters.low_rank import LowRanks
        from runtime.weights.files import load_file

        return LowRanks.of(load_file(self.path), self.scales, self.scale)


def read_stored(files: Files, label: str) -> dict[str, StoredAdapter]:
    """The adapters of a package or an exported folder with these files, by name, in the order of names.

    Raises MalformedFile, UnsupportedSource for those of a later version.
    """
    names = sorted({path.split("/")[1] for path in files if path.startswith(f"{FOLDER}/")})
    if len(names) > _MAX_ADAPTERS:
        raise MalformedFile(f"{label} has {len(names):,} adapters; at most {_MAX_ADAPTERS:,} are read")
    return {
        name: _read(subtree(files, f"{FOLDER}/{name}"), name, f"{label}/{FOLDER}/{name}") for name in names
    }


def _read(files: Files, name: str, label: str) -> StoredAdapter:
    if not _NAME.fullmatch(name):
        raise MalformedFile(
            f"{shown(label)}: {quoted(name)} is no name for an adapter; at most 64 letters, digits, `.`, `_` "
            "and `-` were expected",
            hint="Give that folder another name.",
        )
    for needed in (CONFIG, WEIGHTS):
        if needed not in files:
            raise MalformedFile(f"{label} has no {needed}", hint="Create the package again from its sources.")
    raw = read_json(files[CONFIG], label=f"{label}/{CONFIG}")
    if raw.get("version") != VERSION:
        raise UnsupportedSource(
            f"{label}/{CONFIG} is of version {quoted(raw.get('version'))}; {VERSION} is read",
            hint="Create the package again, or update modelkit-mlx.",
        )
    header = read_header(files[WEIGHTS], label=f"{label}/{WEIGHTS}")
    _check(header, f"{label}/{WEIGHTS}")
    scales = raw.get("scales", {})
    if not isinstance(scales, dict):
        raise MalformedFile(f"{label}/{CONFIG}: `scales` is not an object")
    numbers = {module: _scale(value, f"{label}/{CONFIG}") for module, value in scales.items()}
    base, facts = raw.get("base"), raw.get("facts")
    return StoredAdapter(
        name=name,
        path=files[WEIGHTS],
        config=files[CONFIG],
        header=header,
        scales=numbers,
        scale=_scale(raw.get("scale", 1.0), f"{label}/{CONFIG}"),
        base=base if isinstance(base, str) else None,
        kind=str(raw.get("kind")),
        facts=facts if isinstance(facts, dict) else {},
    )


def _check(header: Header, label: str) -> None:
    """Every tensor is one that `LowRanks.of` knows what to do with."""
    tensors = {tensor.name: tensor for tensor in header.tensors}
    for name, tensor in tensors.items():
        wanted = ("I32",) if name.endswith(".ids") else FLOATS
        if tensor.dtype not in wanted or 0 in tensor.shape:
            raise MalformedFile(f"{label}: `{shown(name)}` is {tensor.dtype} {list(tensor.shape)}")
    partners = ((".lora_down", ".lora_up"), (".lora_up", ".lora_down"), (".ids", ".rows"), (".rows", ".ids"))
    partners += ((".lora_magnitude", ".lora_down"), (".lora_bias", ".lora_down"))
    for one, other in partners:
        for name in tensors:
            if name.endswith(one) and name.removesuffix(one) + other not in tensors:
                raise MalformedFile(f"{label}: `{shown(name)}` has no `{other[1:]}` beside it")


def _scale(value: object, label: str) -> float:
    if not is_finite(value):
        raise MalformedFile(f"{label}: a scale is {quoted(value)}; a number was expected")
    return float(value)


def config_bytes(adapter: "AdapterSource", scales: Mapping[str, float]) -> bytes:
    """adapter_config.json."""
    usual = Counter(scales.values()).most_common(1)[0][0] if scales else 1.0
    value = {
        "version": VERSION,
        "kind": adapter.kind,
        "base": adapter.base,
        "scale": usual,
        "scales": {module: scale for module, scale in scales.items() if scale != usual},
        "facts": dict(adapter.facts),
    }
    return canonical({key: item for key, item in value.items() if item not in (None, {})})


def weights_bytes(tensors: "Mapping[str, Words]") -> Iterator[bytes]:
    """adapter.safetensors, tensor after tensor in the order of their names."""
    entries: dict[str, object] = {"__metadata__": {"format": "mlx"}}
    start = 0
    for name, words in sorted(tensors.items()):
        stop = start + words.array.nbytes
        entries[name] = {"dtype": words.dtype, "shape": list(words.shape), "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for _, words in sorted(tensors.items()):
        yield words.tobytes()
