"""A recipe -> everything that will be written, decided and checked. Nothing is written here; what FROM and
DRAFT name on other machines is fetched first, into the cache of the program that it belongs to; or, where
`Access.hollow` allows no more than a plan, all but the numbers of weights.

What can be refused is refused here: the format, the architectures of target and draft, weights that do not
fit them, the tokenizer, a draft of other tokens, the chat template, the disk. `--dry-run` is this and no
more. No weight is read, but where a file has a head beside a config that ties it (`tying`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from modelkit.chat.builtin import builtin_templates
from modelkit.chat.styles.table import style_named
from modelkit.errors import FetchError, LoadError, ModelkitError, PlanError, TemplateError
from modelkit.fetch.access import Access, NoListener
from modelkit.fetch.upstream import Upstream
from modelkit.modelfile import Quantizing, Recipe
from modelkit.pack import checks
from modelkit.pack.accept import decide
from modelkit.pack.adapters.fusion_plan import with_fused
from modelkit.pack.adapters.package_adapters import Carried, carried_notes
from modelkit.pack.adapters.selection import carried_adapters
from modelkit.pack.adapters.texts_beside import texts_beside
from modelkit.pack.copies import refuse_same, size_notes
from modelkit.pack.draft import about_draft, in_its_words
from modelkit.pack.file_errors import worded
from modelkit.pack.formats import Formats, at_line, settle
from modelkit.pack.inheritance import beneath, merge, with_renderer
from modelkit.pack.licenses import license_files
from modelkit.pack.metadata import DRAFT_FOLDER, Metadata, Provenance
from modelkit.pack.metadata import FILE as METADATA
from modelkit.pack.model_setup import ModelSetup, Unfit, read_setup
from modelkit.pack.origins import lines_of
from modelkit.pack.part import Part
from modelkit.pack.planning.heads import has_head, head_notes
from modelkit.pack.planning.plan_types import Role
from modelkit.pack.preparation import Preparation
from modelkit.pack.quality.report import notes_of
from modelkit.pack.sources import Origin, Source, open_origin, with_head
from modelkit.pack.writing.conversion import memo_key, recall, source_digests
from modelkit.progress import Progress, Silent
from modelkit.source.companion_files import TEMPLATE
from modelkit.source.gguf.lone_head import HeadAlone
from modelkit.source.tree import TOOLS_TEMPLATE
from modelkit.store.manifest import check_files
from modelkit.store.store import Store
from modelkit.temporary import TemporaryFolder, Unwritable
from runtime.models import Described, describe
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.tokenizer import Tokenizer


def prepare(
    recipe: Recipe,
    store: Store,
    *,
    quantize: str | Quantizing | None = None,
    quantize_draft: str | Quantizing | None = None,
    plain: bool = False,
    fuse_adapters: bool = False,
    access: Access | None = None,
    progress: Progress | None = None,
) -> Preparation:
    """Decide and check everything; `quantize` and `quantize_draft` are words of QUANTIZE, or what they mean,
    which take the place of the recipe's. plain: no matrix gets more bits than another. fuse_adapters: they
    become part of the weights. access: what may be fetched where FROM or DRAFT is an address, and who hears
    of it. progress: of reading a model to find its formats.

    Raises PlanError, SourceError, StoreError, FetchError, ModelNotFound, TokenizerError, TemplateError.
    """
    with worded():
        asked = settle(recipe, quantize, quantize_draft, plain=plain)
        order = _Order(recipe, store, asked, fuse_adapters, access or Access(), progress or Silent())
        if order.access.hollow is None and not order.measures:
            foresee = cache(partial(_foresee, order))
            order = replace(order, access=replace(order.access, foresee=foresee))
        try:
            return _prepare(order)
        except _Foreseen as found:
            raise found.error from found.error.__cause__


def foresee(recipe: Recipe, store: Store, *, quantize: str | None, access: Access) -> None:
    """Raise what `prepare` would refuse of a model that is there by its headers alone."""
    with worded():
        asked = settle(recipe, quantize, None, plain=False)
        order = _Order(recipe, store, asked, False, access, Silent())
        if not order.measures:
            try:
                _foresee(order)
            except _Foreseen as found:
                raise found.error from found.error.__cause__


@dataclass(frozen=True, slots=True)
class _Order:
    """What is to be prepared, and with what."""

    recipe: Recipe
    """What the Modelfile itself says."""
    store: Store
    asked: Formats
    fuse: bool
    """Adapters become part of the weights."""
    access: Access
    progress: Progress

    @property
    def measures(self) -> bool:
        """Are formats found by running the model?"""
        return any(one and one.measures for one in (self.asked.target, self.asked.draft))


class _Foreseen(Exception):
    """A refusal that has its place in the Modelfile already."""

    def __init__(self, error: ModelkitError) -> None:
        super().__init__(error)
        self.error = error


def _foresee(order: _Order) -> None:
    """Raise what headers alone tell to be refused. Where these cannot be had, the weights still may."""
    with TemporaryFolder("plan", "headers of weights") as hollow:
        outline = replace(order.access, hollow=hollow, listener=NoListener())
        try:
            _prepare(replace(order, access=outline, progress=Silent()))
        except (FetchError, Unwritable):
            return
        except ModelkitError as error:
            raise _Foreseen(error) from error


@dataclass(frozen=True, slots=True)
class _Opened:
    """What FROM and DRAFT point at."""

    recipe: Recipe
    """With what comes with FROM, where the Modelfile does not say it."""
    origin: Origin
    """The target's."""
    draft: Origin | None
    """None where there is no draft, or where it is a head of the target's own."""
    upstream: Upstream | None
    """Where the draft was fetched from."""


def _open(order: _Order) -> _Opened:
    """A draft head that lies in a file of its own becomes the target's. The draft of FROM is not looked at
    where the Modelfile says another, or none: so a broken one can be replaced.
    """
    recipe, store, access = order.recipe, order.store, order.access
    inherits = recipe.draft is None and not recipe.draftless
    with recipe.at("FROM"):
        origin = open_origin(recipe.from_, store, access, with_draft=inherits)
    recipe = with_renderer(beneath(recipe, origin.said))
    if recipe.draft is None:
        return _Opened(recipe, origin, None, None)
    with recipe.at("DRAFT"), in_its_words():
        try:
            draft = open_origin(recipe.draft, store, access)
        except HeadAlone as head:
            return _Opened(recipe, with_head(origin, head), None, head.upstream)
    return _Opened(recipe, origin, draft, draft.source.upstream)


def _prepare(order: _Order) -> Preparation:
    if order.measures:
        order = replace(order, access=replace(order.access, hollow=None))
    opened = _open(order)
    recipe, origin, asked, store = opened.recipe, opened.origin, order.asked, order.store
    target = _part(origin.source, "target", asked.target, origin.metadata.provenance, store)
    draft = _draft_part(origin, opened.draft, asked.draft, store)
    metadata = _metadata(opened, draft)
    tokenizer, notes = checks.check_target(target)
    if draft:
        with recipe.at("DRAFT"):
            notes += checks.check_beside(draft, target, tokenizer)
    checks.refuse_texts(target, order.recipe)
    target, brought = _with_adapters(order, opened, target)
    adapters = () if order.fuse else brought
    if not order.measures:
        _refuse_same(recipe, target, draft)
    described = describe(target.plan.config)
    ready = _ready(target, described, recipe, metadata, tokenizer)
    template = _template(recipe, ready, metadata, described)
    target, texts = _with_texts(target, recipe, template)
    check_files(_paths(target, draft, adapters, texts))
    target, draft, reports = _with_found_formats(order, target, draft, ready)
    if order.measures:
        _refuse_same(recipe, target, draft)
    write_bytes = _required_bytes(target, draft, adapters, store)
    notes = (
        *asked.notes,
        *_notes(recipe, opened.draft, target, draft),
        *notes,
        *ready.notes,
        *template.notes,
        *_adapter_notes(brought, recipe, ready, writes=described.writes),
        *notes_of(reports),
        *checks.check_reach(ready, template.capabilities, described),
        *checks.check_draft_reach(draft, ready, described),
        *checks.check_placed(template, metadata, ready, described.context_length),
    )
    return Preparation(
        target,
        draft,
        metadata,
        template.capabilities,
        {**texts, **reports},
        notes,
        lines_of(recipe, asked, store, _fetched(opened), fused=order.fuse),
        write_bytes,
        adapters,
    )


def _metadata(opened: _Opened, draft: Part | None) -> Metadata:
    metadata = merge(opened.origin.metadata, opened.recipe, draft)
    if metadata.requires is not None:
        with opened.recipe.at("REQUIRES"):
            checks.check_requires(metadata.requires)
    return metadata


def _with_adapters(order: _Order, opened: _Opened, target: Part) -> tuple[Part, tuple[Carried, ...]]:
    """The target, with adapters in it where they are fused, and these."""
    recipe = opened.recipe
    adapters = carried_adapters(recipe, opened.origin, target, order.access, order.store, fuse=order.fuse)
    if not order.fuse:
        return target, adapters
    with recipe.at("ADAPTER"):
        checks.refuse_searched(order.asked.target, order.asked.draft)
        return with_fused(target, adapters, order.asked.target, order.store), adapters


def _adapter_notes(
    adapters: tuple[Carried, ...], recipe: Recipe, ready: ModelSetup, *, writes: bool
) -> Iterator[str]:
    yield from carried_notes(adapters, recipe.from_.text)
    yield from texts_beside(adapters, ready, chats=writes and recipe.template is None)


def _with_texts(target: Part, recipe: Recipe, template: checks.Template) -> tuple[Part, dict[str, bytes]]:
    """Files that are written for the package, by path. What TEMPLATE says takes the place of the model's."""
    texts = license_files(target.source.inventory.files, recipe.licenses)
    if recipe.template is None or template.source is None:
        return target, texts
    return _without_tools_template(target), {**texts, TEMPLATE: template.source.encode()}


def _with_found_formats(
    order: _Order, target: Part, draft: Part | None, ready: ModelSetup
) -> tuple[Part, Part | None, Mapping[str, bytes]]:
    """Both, decided anew by what formats cost where that is asked for; the reports of that by path."""
    if not order.measures:
        return target, draft, {}
    from modelkit.pack.quality.parts import find_formats

    return find_formats(target, draft, ready, order.store, order.progress)


def _paths(
    target: Part, draft: Part | None, adapters: tuple[Carried, ...], texts: Iterable[str]
) -> list[str]:
    """Of the files that the package will have."""
    found = {METADATA, *target.paths, *texts, *(path for one in adapters for path in one.paths)}
    return sorted(found | {f"{DRAFT_FOLDER}/{path}" for path in (draft.paths if draft else ())})


def _part(
    source: Source, role: Role, asked: Quantizing | None, inherited: Provenance | None, store: Store
) -> Part:
    with at_line(asked):
        format_ = asked.format if asked else None
        part = decide(source, role, format_, plain=asked is not None and asked.plain)
        if asked and asked.measures:
            from modelkit.pack.quality.source_check import refuse_packed

            refuse_packed(part, asked)
    part = replace(part, asked=asked, inherited=None if asked else inherited)
    digests = source_digests(part.source, store, read=False)
    if digests is None:
        return part
    return replace(part, reused=recall(store, memo_key(digests, part.plan)))


def _ready(
    target: Part, described: Described, recipe: Recipe, metadata: Metadata, tokenizer: "Tokenizer"
) -> ModelSetup:
    """All that running needs beside the weights. Raises PlanError, TokenizerError, TemplateError."""
    try:
        return read_setup(
            target.source.inventory,
            described,
            tokenizer,
            metadata.parameters,
            explicit_template=recipe.template,
        )
    except Unfit as error:
        with recipe.at(f"PARAMETER {error.parameter}"):
            raise PlanError(error.message, hint=error.hint) from error
    except LoadError as error:
        raise PlanError(error.message, hint=error.hint) from error
    except TemplateError:  # of a TEMPLATE line: where the model's own does not work, that is a note
        with recipe.at("TEMPLATE"):
            raise


def _template(recipe: Recipe, ready: ModelSetup, metadata: Metadata, described: Described) -> checks.Template:
    with recipe.at("TEMPLATE"):
        found = checks.check_template(ready, recipe.template, metadata.parser, writes=described.writes)
    with recipe.at("PARAMETER think"):
        checks.check_thinking(ready, found.capabilities, metadata.parameters.resolved().think)
    return found


def _required_bytes(target: Part, draft: Part | None, adapters: tuple[Carried, ...], store: Store) -> int:
    """What may have to be written, at most. Raises StoreError where there is no room for it."""
    required = sum(part.write_bytes for part in (target, draft) if part)
    required += sum(one.nbytes for one in adapters if one.placement)
    if required:
        store.require_space(required)
    return required


def _without_tools_template(part: Part) -> Part:
    """What TEMPLATE says counts for conversations with tools, too."""
    inventory = part.source.inventory
    files = {name: path for name, path in inventory.files.items() if name != TOOLS_TEMPLATE}
    return replace(part, source=replace(part.source, inventory=replace(inventory, files=files)))


def _draft_part(origin: Origin, beside: Origin | None, asked: Quantizing | None, store: Store) -> Part | None:
    """The draft that DRAFT names, else the one that FROM brought."""
    with in_its_words():
        if beside:
            return _part(beside.source, "draft", asked, beside.metadata.provenance, store)
        if origin.draft:
            return _part(origin.draft, "draft", asked, origin.metadata.draft_provenance, store)
    if asked is None:
        return None
    missing = f"there is no draft to store as {asked}"
    with at_line(asked):
        if has_head(origin.source.inventory):
            raise PlanError(
                f"{missing}: the model's own draft head is stored with the model, as its format says",
                hint="Leave the draft's format out, or add a DRAFT line, which takes the head's place.",
            )
        raise PlanError(missing, hint="Add a DRAFT line to the Modelfile, or leave the draft's format out.")


def _refuse_same(recipe: Recipe, target: Part, draft: Part | None) -> None:
    """Raise PlanError, once their formats are known, for a draft that is its own target."""
    if draft:
        with recipe.at("DRAFT"):
            refuse_same(target, draft)


def _notes(recipe: Recipe, beside: Origin | None, target: Part, draft: Part | None) -> Iterator[str]:
    yield from recipe.notes
    yield from _part_notes(target)
    yield from head_notes(target.plan, draft=draft is not None)
    if draft:
        own = (*_part_notes(draft), *head_notes(draft.plan, draft=False))
        yield from (f"draft: {about_draft(note)}" for note in own)
        yield from size_notes(target, draft)
    if beside and beside.draft:
        yield f"{beside.source.inventory.origin} has a draft of its own, which is not used for a draft"
    if beside and (beside.adapters or beside.beside):
        yield f"{beside.source.inventory.origin} has adapters, which are not used for a draft"
    if recipe.renderer and recipe.renderer.strip() not in builtin_templates():
        yield f"RENDERER {recipe.renderer} is recorded; here the chat template decides"
    if recipe.parser and style_named(recipe.parser) is None:
        unknown = f"PARSER {recipe.parser} is recorded"
        yield f"{unknown}; no output style has this name, so the chat template decides"


def _fetched(opened: _Opened) -> dict[str, Upstream | None]:
    """Where what FROM and DRAFT name was fetched from. Of a stored package that is another matter: it is
    named by its own name."""
    return {"FROM": opened.origin.source.upstream, "DRAFT": opened.upstream}


def _part_notes(part: Part) -> tuple[str, ...]:
    return (*part.source.inventory.notes, *part.source.notes, *part.plan.notes)
