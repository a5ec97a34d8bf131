"""A package -> what its GGUF file will hold: from headers, scales and the tokenizer. `writing` writes it.

Everything that can be refused is refused here, before a byte is written.
"""

from collections.abc import Generator, Mapping
from math import prod
from typing import Any

from modelkit.chat.find import find_template
from modelkit.errors import StoreError, TemplateError, UnsupportedSource
from modelkit.pack.authors import read_generation_config, read_suppressed
from modelkit.pack.gguf.embedding import embedding
from modelkit.pack.gguf.llama_cpp_limits import limits
from modelkit.pack.gguf.metadata import (
    general_metadata,
    kept_metadata,
    own_name,
    safe_name,
    sampling_metadata,
    unwritten_parameters,
)
from modelkit.pack.gguf.plan import Kind, Written, kinds, plan
from modelkit.pack.gguf.read_back import check_read_back
from modelkit.pack.gguf.rows import part_values, values
from modelkit.pack.gguf.spellings import respelled
from modelkit.pack.gguf.tensors import Stored, stored_tensors
from modelkit.pack.gguf.vocabulary import Vocabulary, vocabulary_metadata
from modelkit.pack.licenses import is_license
from modelkit.pack.metadata import Provenance
from modelkit.pack.sources import Origin as Opened
from modelkit.pack.sources import Source, open_package
from modelkit.pack.writing.reader import Reader
from modelkit.source.gguf.architectures import Described, describe_for_gguf
from modelkit.source.gguf.architectures.dflash import is_block_draft
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.header_bytes import Entry, padded
from modelkit.source.gguf.vocabulary.pieces import KEY, PLAIN
from modelkit.source.inventory import WeightFile
from modelkit.store.package import Package
from modelkit.tokenizer.load import load_tokenizer
from runtime.blocks.types import BLOCK_TYPES
from runtime.config.text import text_config
from runtime.models import describe
from runtime.models.registry.described import whole_config
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Planned:
    """A file that can be written."""

    files: tuple[WeightFile, ...]
    """Where the tensors lie."""
    tensors: Mapping[str, Stored]
    metadata: Mapping[str, Any]
    written: tuple[Written, ...]
    extra: Mapping[str, tuple[float, ...]]
    """Tensors of float32 that follow from the config."""
    notes: tuple[str, ...]
    """Sentences for the user: what is left out, and what is not said."""

    @property
    def kinds(self) -> list[Kind]:
        """How many tensors there are of each type, and what becomes of their numbers."""
        return kinds(list(self.written))

    def to_json(self) -> list[dict[str, Any]]:
        """`kinds`, for programs."""
        return [
            {"type": kind.type, "how": kind.how, "why": kind.why or None, "tensors": kind.tensors,
             "size_bytes": kind.nbytes}
            for kind in self.kinds
        ]  # fmt: skip

    @property
    def entries(self) -> list[Entry]:
        extra = [Entry(name, BLOCK_TYPES["f32"], (len(values),)) for name, values in self.extra.items()]
        return [*(one.entry for one in self.written), *extra]

    @property
    def nbytes(self) -> int:
        """Of the data."""
        return sum(padded(entry.nbytes) for entry in self.entries)


@dataclass(frozen=True, slots=True)
class ExportedGguf:
    """A GGUF file that was written."""

    size_bytes: int
    tensors: tuple[Kind, ...]
    """How many there are of each type, and what became of their numbers."""
    notes: tuple[str, ...]
    """Sentences for the user: what is not in the file."""


def plan_gguf(package: Package, *, draft: bool = False) -> Planned:
    """What the file of a package holds, or that of its draft. The caller holds the package's blobs.

    Raises UnsupportedSource for what GGUF cannot hold, and StoreError for a draft that is not there.
    """
    opened = open_package(package)
    source, provenance = _part(opened, package, draft=draft)
    label = source.inventory.origin
    if draft:
        _refuse_special(source)
    with Reader(source.inventory.weights) as reader:
        described, tensors, notes = _described(source, reader)
        made = embedding(source, described, label)
        tensors = {**tensors, **made.tensors}
        written = plan({**described.tensors, **made.origins}, tensors, reader)
        extra = {**described.extra, **_factors(written, tensors, reader, label)}
        rows = _target_rows(opened) if described.of_target else _embedding_rows(written, label)
        vocabulary = _vocabulary(source, opened, rows, described)
        name = own_name(source.inventory.files, provenance, str(package.name))
        metadata = {
            "general.architecture": described.architecture,
            **kept_metadata(source.inventory.files),
            **general_metadata(safe_name(name, vocabulary.metadata[KEY + "tokens"]), provenance, written),
            **_sampling(opened, source, draft=draft),
            **described.metadata,
            **made.metadata,
            **(_sections(opened, source, described.architecture) if described.of_target else {}),
            **vocabulary.metadata,
            **_template(source),
        }
        config = source.inventory.config
        check_read_back(config, described, metadata, written, tensors, reader, label)
    told = list(limits(whole_config(config), {*extra, *(one.entry.name for one in written)}, metadata))
    told += [] if draft else _unsaid(opened)
    files = (*source.inventory.weights, *made.files)
    notes = (*notes, *made.notes, *vocabulary.notes, *told)
    return Planned(files, tensors, metadata, tuple(written), extra, notes)


def _sampling(opened: Opened, source: Source, *, draft: bool) -> dict[str, Any]:
    parameters = read_generation_config(source.inventory.generation_config or {})[0]
    return sampling_metadata(parameters if draft else parameters.merge(opened.metadata.parameters))


def _factors(
    written: list[Written], tensors: Mapping[str, Stored], reader: Reader, label: str
) -> dict[str, tuple[float, ...]]:
    """What blocks are multiplied by besides, as tensors of their own."""
    found: dict[str, tuple[float, ...]] = {}
    for one in written:
        factors = [tensors[name].factor for name in one.origin.tensors]
        (factor, *others) = factors
        if any(factors) and (others or factor is None or one.choice.how != "copied"):
            raise UnsupportedSource(f"{label}: {one.entry.name} would need several factors for its blocks")
        if factor:
            found[f"{one.entry.name.removesuffix('.weight')}.scale"] = tuple(part_values(factor, reader))
    return found


def _described(source: Source, reader: Reader) -> tuple[Described, dict[str, Stored], list[str]]:
    """By the table, with the draft heads where its row has a place for them; notes."""
    found, label = stored_tensors(source), source.inventory.origin
    config = whole_config(source.inventory.config)
    notes = [f"{found.towers:,} tensors for images and sound are left out"] if found.towers else []
    if found.unread:
        notes.append(f"{', '.join(found.unread)} left out: embeddings are made of hidden states alone")

    if found.clusters:
        notes.append("the clusters of its vocabulary have no place in GGUF: all tokens are scored there")

    def described(tensors: Mapping[str, Stored]) -> Described:
        shapes = {name: one.shape for name, one in tensors.items()}
        return describe_for_gguf(config, shapes, lambda name: values(tensors[name], reader), label)

    model = respelled(source.inventory.config, found.model, label)
    tensors = {**model, **found.heads}
    try:
        made = described(tensors)
    except UnsupportedSource:
        if not found.heads:
            raise
        tensors = model
        made = described(tensors)
        notes.append(
            f"{len(found.heads):,} tensors of the draft head are left out: llama.cpp has no place for them"
        )
    return made, tensors, [*notes, *made.notes]


def _part(opened: Opened, package: Package, *, draft: bool) -> tuple[Source, Provenance | None]:
    if not draft:
        return opened.source, opened.metadata.provenance
    if opened.draft is None:
        raise StoreError(f"{package.name} has no draft", hint="Leave --draft out to write the model itself.")
    return opened.draft, opened.metadata.draft_provenance


def _refuse_special(source: Source) -> None:
    """Raise UnsupportedSource for a draft that is not a language model."""
    kind = describe(source.inventory.config).family.drafts_as
    if kind == "block" and not is_block_draft(source.inventory.config):
        raise UnsupportedSource(
            f"{source.inventory.origin} is a block draft (DFlash), which is not written as GGUF",
            hint="`modelkit export NAME DIR` lays it out as a folder.",
        )


def _vocabulary(source: Source, opened: Opened, rows: int, described: Described) -> Vocabulary:
    """The model's, or for a draft without one its target's."""
    own = "tokenizer.json" in source.inventory.files
    inventory = source.inventory if own else opened.source.inventory
    tokenizer = load_tokenizer(inventory.files)
    generation = inventory.generation_config or {}
    ends = tokenizer.eos_ids(generation, inventory.config)
    never = read_suppressed(generation, rows)[0]
    return vocabulary_metadata(
        tokenizer,
        ends,
        never,
        rows=rows,
        plain=described.architecture == PLAIN,
        framed=described.looks_ahead,
        label=source.inventory.origin,
    )


def _embedding_rows(written: list[Written], label: str) -> int:
    found = next((one for one in written if one.entry.name == "token_embd.weight"), None)
    if found is None:
        raise UnsupportedSource(f"{label} has no embedding, which a GGUF file needs")
    return prod(found.entry.shape[:-1])


def _target_rows(opened: Opened) -> int:
    return int(text_config(opened.source.inventory.config)["vocab_size"])


def _sections(opened: Opened, source: Source, architecture: str) -> dict[str, list[int]]:
    """For a target that rotates by three positions: a draft goes by the first alone."""
    rope = Facts(text_config(opened.source.inventory.config)).get(
        "rope_parameters", "rope_scaling", default={}
    )
    if "mrope_section" not in rope:
        return {}
    half = Facts(source.inventory.config).head_dim // 2
    return {f"{architecture}.rope.dimension_sections": [half, 0, 0, 0]}


def _template(source: Source) -> dict[str, str]:
    try:
        found = find_template(source.inventory.files)
    except TemplateError:
        return {}
    return {"tokenizer.chat_template": found} if found else {}


def _unsaid(opened: Opened) -> Generator[str]:
    """What else the package has."""
    if opened.metadata.system is not None or opened.metadata.messages:
        yield "SYSTEM and MESSAGE of the Modelfile have no place in a GGUF file"
    unwritten = unwritten_parameters(opened.metadata.parameters)
    if unwritten:
        yield f"PARAMETER {', '.join(unwritten)} of the Modelfile: no place in a GGUF file"
    licences = [name for name in opened.source.inventory.files if is_license(name)]
    if licences:
        yield f"the text of {', '.join(sorted(licences))} is not in the file; pass it on beside it"
    if opened.adapters:
        names = ", ".join(sorted(opened.adapters))
        yield f"adapters are not in the file ({names}); `create --fuse-adapters` makes them weights"
    if opened.draft is not None:
        yield "the draft is not in the file; `modelkit export NAME FILE --draft` writes it into its own"
