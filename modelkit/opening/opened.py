"""A model about to be loaded, as `read` finds it and `start` takes it."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from modelkit.pack.adapters.package_adapters import Carried, carried_notes
from modelkit.pack.adapters.texts_beside import texts_beside
from modelkit.pack.checks import check_requires
from modelkit.pack.metadata import FILE as METADATA
from modelkit.pack.metadata import Metadata, read_metadata
from modelkit.pack.model_setup import ModelSetup, read_setup
from modelkit.pack.pooling import context_tokens
from modelkit.source.inventory import Inventory
from modelkit.source.tree import Files, is_own
from modelkit.tokenizer import Tokenizer
from runtime.models import describe
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.pack.part import Part
    from modelkit.ranks.outline import Outline


@dataclass(frozen=True, slots=True)
class Opened:
    """A model about to be loaded."""

    label: str
    """What users call it: the package's name, or the path that was given."""
    inventory: Inventory
    """With the tensors that will be loaded."""
    draft: Inventory | None
    metadata: Metadata
    ready: ModelSetup
    context_length: int
    """The most tokens that the model can follow; of one that makes embeddings only, those of a text."""
    notes: tuple[str, ...]
    """Sentences for the user."""
    converted: "Part | None" = None
    """What the tensors of `inventory` are made of while they are loaded; None: they lie in its files."""
    converted_draft: "Part | None" = None
    """The same of `draft`."""
    digest: str | None = None
    """What names its layer memory on disk; None for a folder."""
    package: str | None = None
    """The digest of its manifest; None for a folder."""
    adapters: tuple[Carried, ...] = ()
    """What may be added to the target's weights, in the order in which they were named."""
    added: tuple[Path, ...] = ()
    """Where those of them are that are not in the package."""
    outline: "Outline | None" = None
    """Where the store has an outline: all but the weights of the target, of which headers alone are here."""

    @property
    def stored_bytes(self) -> int:
        """Of the target's weights in the form in which they are loaded."""
        if self.converted is not None:
            return self.converted.plan.nbytes
        return sum(tensor.nbytes for tensor in self.inventory.tensors.values())


def recipe_of(files: Files, label: str) -> Metadata:
    """What a package's modelkit.json says; an empty recipe where there is none. Raises StoreError, and
    PlanError where it asks for a newer version of this program.
    """
    metadata = read_metadata(files.get(METADATA), label)
    if metadata.requires:
        check_requires(metadata.requires)
    return metadata


def target_files(files: Files) -> Files:
    """Those that are neither the draft's, nor adapters', nor of modelkit itself."""
    return {path: real for path, real in files.items() if is_own(path) and path != METADATA}


def opened(
    label: str,
    inventory: Inventory,
    draft: Inventory | None,
    metadata: Metadata,
    tokenizer: Tokenizer,
    adapters: tuple[Carried, ...],
) -> Opened:
    """With all that an answer needs besides the weights. Raises what `read_setup` raises."""
    described = describe(inventory.config)
    ready = read_setup(inventory, described, tokenizer, metadata.parameters)
    beside = texts_beside(adapters, ready, chats=described.writes)
    notes = (*ready.notes, *carried_notes(adapters, label), *beside)
    context = context_tokens(described, ready.pooling)
    return Opened(label, inventory, draft, metadata, ready, context, notes, adapters=adapters)


def with_notes(found: Opened, notes: tuple[str, ...]) -> Opened:
    """The same, and these in front of what it says to the user."""
    return replace(found, notes=(*notes, *found.notes)) if notes else found
