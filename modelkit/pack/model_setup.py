"""What an answer needs besides the weights: tokens that end a text, template, parameters, layer memory.

Asked by `create` before a package is written, and again whenever one, or a folder, is opened to run: so no
package is made that cannot run. Reads small files only.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from modelkit.chat.find import find_template
from modelkit.chat.template import ChatTemplate
from modelkit.errors import LoadError, RequestError, TemplateError, TokenizerError
from modelkit.modelfile import PARAMETERS, Parameters, Resolved
from modelkit.pack.authors import read_forced, read_generation_config, read_start, read_suppressed
from modelkit.pack.languages import Languages, no_languages, read_languages
from modelkit.pack.pooling import Pooling, read_pooling
from modelkit.source.inventory import Inventory
from modelkit.tokenizer import Tokenizer
from runtime.cache.layout import LayerSpec, keeps_tokens, misfits
from runtime.models import Described
from runtime.quoting import quoted, shown
from runtime.records import dataclass

_LEAST_CONTEXT = 2  # one token of prompt, and one of answer
_SHOWN = 3


class Unfit(LoadError):
    """A parameter that does not suit the model."""

    parameter: str

    @classmethod
    def of(cls, parameter: str, message: str, hint: str) -> "Unfit":
        error = cls(message, hint=hint)
        error.parameter = parameter
        return error


@dataclass(frozen=True, slots=True)
class ModelSetup:
    """What an answer needs besides the weights."""

    tokenizer: Tokenizer
    stop_ids: frozenset[int]
    """They end a text."""
    suppressed: tuple[int, ...]
    """Ids that are never drawn."""
    template: ChatTemplate | None
    """None for a model without one, and for one whose own does not work."""
    template_fault: TemplateError | None
    """Why its own does not work. Prompts can still be given as they are."""
    parameters: Parameters
    """The package's, and its authors' where it sets none."""
    notes: tuple[str, ...]
    """Sentences for the user."""
    start_id: int | None = None
    """What answers begin with where an encoder reads the prompt; None where they go on from it."""
    forced_id: int | None = None
    """What stands behind it; None for nothing."""
    languages: Languages | None = None
    """Those that a translator knows."""
    pooling: Pooling = Pooling("last", "")  # frozen
    """How a text's hidden states become its embedding."""


def read_setup(
    inventory: Inventory,
    described: Described,
    tokenizer: Tokenizer,
    parameters: Parameters,
    *,
    explicit_template: str | None = None,
) -> ModelSetup:
    """inventory, described: the target. parameters: of the recipe. explicit_template: of a TEMPLATE line.

    Raises TokenizerError, LoadError, Unfit, and TemplateError for an explicit template.
    """
    if not described.writes:
        return _encoder(inventory, described, tokenizer, parameters)
    generation, label = inventory.generation_config or {}, inventory.origin
    if described.context_length < _LEAST_CONTEXT:
        raise LoadError(f"{label} has a context of {described.context_length} token: no room for an answer")
    try:
        stop_ids = tokenizer.eos_ids(generation, inventory.config)
    except TokenizerError as error:
        raise TokenizerError(f"{label}: {error.message}", hint=error.hint) from error
    start, other = read_start(generation, described)
    forced, behind = (
        (None, ()) if start is None else read_forced(inventory.config, generation, described.vocab_size)
    )
    authors, notes = read_generation_config(generation, () if start is None else ("forced_bos_token_id",))
    suppressed, more = read_suppressed(generation, described.vocab_size)
    merged = authors.merge(parameters)
    kept_format(label, described.layout, merged.resolved().kv_format)
    _check_keep(label, described.context_length, merged.resolved())
    template, fault = _template(inventory.files, explicit_template, tokenizer)
    languages = read_languages(tokenizer, start)
    _check_languages(languages, merged.resolved())
    notes = (*notes, *more, *other, *behind, *_ends(tokenizer, stop_ids, merged.resolved()))
    return ModelSetup(
        tokenizer=tokenizer,
        stop_ids=stop_ids,
        suppressed=suppressed,
        template=template,
        template_fault=fault,
        parameters=merged,
        notes=(*notes, *_unsaid_target(languages, merged.resolved(), start, forced)),
        start_id=start,
        forced_id=forced,
        languages=languages,
        pooling=read_pooling(inventory.files, described),
    )


def _check_languages(languages: Languages | None, wanted: Resolved) -> None:
    """Raise Unfit for a language that the model does not have."""
    for name in ("source_language", "target_language"):
        code = getattr(wanted, name)
        if code is None:
            continue
        try:
            if languages is None:
                raise no_languages(name)
            languages.token_of(name, code)
        except RequestError as error:
            raise Unfit.of(name, error.message, error.hint or "") from error


def _unsaid_target(
    languages: Languages | None, wanted: Resolved, start: int | None, forced: int | None
) -> tuple[str, ...]:
    """A note for a translator of which nothing says what it writes."""
    if languages is None or wanted.target_language or {start, forced} & {*languages.ids.values()}:
        return ()
    return (
        f"nothing says which of {len(languages.ids):,} languages answers are in: give target_language, "
        f"such as {next(iter(languages.ids))}",
    )


def _ends(tokenizer: Tokenizer, stop_ids: frozenset[int], wanted: Resolved) -> tuple[str, ...]:
    """Notes where a token that begins or ends texts is named and not there, and where nothing ends them."""
    specials = tokenizer.specials
    named = (("bos_token", specials.bos, tokenizer.bos_id), ("eos_token", specials.eos, tokenizer.eos_id))
    notes = tuple(
        f"the tokenizer's {role} is {quoted(text)}, which is not a token of its vocabulary"
        for role, text, one in named
        if text is not None and one is None
    )
    lost = [text for text in specials.others if tokenizer.piece_to_id(text) is None]
    if lost:
        named_so = ", ".join(map(shown, lost[:_SHOWN])) + (", ..." if len(lost) > _SHOWN else "")
        notes = (*notes, f"special tokens that the vocabulary has not are texts like any other: {named_so}")
    if stop_ids or wanted.stop:
        return notes
    return (
        *notes,
        "nothing says which token ends a text (eos_token in tokenizer_config.json, eos_token_id in "
        "generation_config.json or config.json): answers go on until num_predict or the context ends them",
    )


def _encoder(
    inventory: Inventory, described: Described, tokenizer: Tokenizer, parameters: Parameters
) -> ModelSetup:
    """What embeddings need: no text ends, and nothing is drawn."""
    _, notes = kept_format(inventory.origin, described.layout, parameters.resolved().kv_format)
    idle = [name for name in parameters if not PARAMETERS[name].at_load]
    if idle:
        notes += (
            f"PARAMETER {' and '.join(idle)} {'have' if len(idle) > 1 else 'has'} no effect: the model makes "
            "embeddings, and writes no text",
        )
    pooling = read_pooling(inventory.files, described)
    return ModelSetup(tokenizer, frozenset(), (), None, None, parameters, notes, pooling=pooling)


def context_of(longest: int, num_ctx: int | None) -> tuple[int, tuple[str, ...]]:
    """Tokens of prompt and answer for a model that takes `longest`, and a note where more is asked for."""
    if num_ctx is None or num_ctx <= longest:
        return num_ctx or longest, ()
    return longest, (f"num_ctx {num_ctx} is more than the model's {longest}; it runs with {longest}",)


def _check_keep(label: str, longest: int, wanted: Resolved) -> None:
    """Raise Unfit for a num_keep that no prompt of this model can have."""
    context, _ = context_of(longest, wanted.num_ctx)
    if wanted.num_keep is not None and wanted.num_keep >= context:
        raise Unfit.of(
            "num_keep",
            f"num_keep is {wanted.num_keep:,} and the context of {label} is {context:,} tokens, answer"
            " included",
            "Give a num_keep below that, or -1 for the first turn of a conversation.",
        )


def kept_format(label: str, layout: Sequence[LayerSpec], name: str) -> tuple[str | None, tuple[str, ...]]:
    """How keys and values are kept by the parameter kv_format, None for the activations' type, and notes.

    A format that only some layers could hold is refused too, as Unfit: a cache of which only a part is as
    small as was asked for would take more memory than the user counts on.
    """
    if name == "auto":
        return None, ()
    if not any(map(keeps_tokens, layout)):
        return None, (f"kv_format {name} has no effect: no layer of {label} keeps keys and values",)
    problems = misfits(layout, name)
    if problems:
        raise Unfit.of(
            "kv_format", f"kv_format {name} does not suit {label}: {problems[0]}", "Take f16, bf16 or auto."
        )
    return name, ()


def _template(
    files: Mapping[str, Path], explicit: str | None, tokenizer: Tokenizer
) -> tuple[ChatTemplate | None, TemplateError | None]:
    try:
        source = find_template(files, explicit)
        if source is None:
            return None, None
        template = ChatTemplate.of(source, tokenizer.specials)
    except TemplateError as fault:
        if explicit is not None:
            raise
        return None, fault
    return template, None
