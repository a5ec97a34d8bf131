"""An address -> a package in the store: what a room that fetches packages gives, and what they are called."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

from modelkit.address import Address, HubAddress, OllamaAddress
from modelkit.fetch.access import Access, Listener
from modelkit.modelfile import Recipe
from modelkit.store.digest import Digest
from modelkit.store.name import Name
from modelkit.store.store import Store
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Pulled:
    """A package that was fetched."""

    name: Name
    digest: Digest
    """Its manifest's."""
    size_bytes: int
    """Of all its files."""
    notes: tuple[str, ...] = ()
    """Sentences for the user."""


class MadePackage(Protocol):
    """A package that was made."""

    @property
    def digest(self) -> Digest: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


class Make(Protocol):
    """Makes a package by a recipe, as `create` does. Given from above (`pack.build`): what only fetches knows
    nothing of how packages are made.
    """

    def __call__(
        self,
        recipe: Recipe,
        name: Name,
        store: Store,
        *,
        quantize: str | None,
        progress: Listener,
        access: Access,
    ) -> MadePackage: ...


class Foresee(Protocol):
    """Raises what `Make` would refuse of weights that are there by their headers alone; given as that is."""

    def __call__(self, recipe: Recipe, store: Store, *, quantize: str | None, access: Access) -> None: ...


Weights = Literal["here", "headers", "elsewhere"]
"""What of a package's weights is on this machine."""


class Judge(Protocol):
    """Raises what keeps a package from running here, as far as what is here tells it, and gives notes on one
    that does; given as `Make` is. files: by their paths in the package.
    """

    def __call__(self, files: Mapping[str, Path], label: str, weights: Weights) -> tuple[str, ...]: ...


def name_for(address: Address, quantize: str | None = None) -> Name:
    """What a package is called that comes from there, if nobody says: `hf.co/Qwen/Qwen3-8B-GGUF:Q4_K_M` gives
    `qwen/qwen3-8b-gguf:q4_k_m`, `ollama.com/library/llama3.2:1b` gives `llama3.2:1b`. A file of a repository
    that was named is in it, so that another one does not take its place, and so is what `quantize` (a word
    of QUANTIZE) makes of it: `qwen/qwen3-8b:q4`.
    """
    path = address.repository.removeprefix("library/").split("/")
    if isinstance(address, HubAddress):
        named = address.quant or _stem(address.file)
        tag = "-".join(filter(None, (named, _short(address.revision))))
    elif isinstance(address, OllamaAddress):
        tag = address.tag
    else:
        tag = address.tag or _short((address.digest or "").removeprefix("sha256:"))
    tag = "-".join(filter(None, (tag, quantize)))
    namespace = _part(path[-2], dots=False) if len(path) > 1 else ""
    return Name.parse(f"{namespace}/{_part(path[-1])}:{_part(tag or 'latest')}".removeprefix("/"))


def _stem(file: str | None) -> str:
    """A file without its ending and the number of its shard; folders are part of it."""
    return re.sub(r"(?i)(?:-[0-9]{5}-of-[0-9]{5})?\.[^./]+$", "", file or "")


def _short(revision: str | None) -> str:
    """A commit as it is shown, a branch as it is."""
    text = revision or ""
    return text[:12] if re.fullmatch(r"[0-9a-f]{40,64}", text) else text


def _part(text: str, *, dots: bool = True) -> str:
    """One part of a name, with `-` for what no name has."""
    plain = re.sub(r"[^a-z0-9._-]" if dots else r"[^a-z0-9_-]", "-", text.lower())
    return re.sub(r"\.\.+", ".", plain)[:80].strip(".-") or "model"
