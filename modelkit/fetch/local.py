"""A model's files on this machine, wherever they came from."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from modelkit.fetch.upstream import Upstream
from modelkit.modelfile import Directive
from modelkit.source.tree import Files
from modelkit.store.digest import Digest
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Local:
    """What a fetch gives, or a look into another program's folder. Nothing in it has been opened."""

    label: str
    """How messages call it."""
    files: Files
    """Everything that is needed, by name; without folders."""
    gguf: Path | None = None
    """The file of weights, or the first of its shards, where the model is one in GGUF."""
    upstream: Upstream | None = None
    """Where it came from, as far as that is known."""
    promised: Mapping[Path, Digest] = field(default_factory=dict[Path, Digest])
    """The digests that whoever keeps these files says they have; they count once they are checked."""
    directives: tuple[Directive, ...] = ()
    """What was packaged with it: parameters, a system text, licences."""
    adapters: "tuple[Local, ...]" = ()
    """Those that were packaged with it, in their order; `label` is what they are called in a package."""
    hollow: bool = False
    """Are there files of weights without their numbers among them?"""
    notes: tuple[str, ...] = ()
    """Sentences for the user."""
