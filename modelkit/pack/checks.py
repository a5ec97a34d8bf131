"""What a package must hold up to before it is written. Each check raises in the words of the user's files.

Everything heavy (MLX for the shapes of modules, the tokenizer library) is imported where it is used.
"""

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from modelkit import __version__
from modelkit.errors import PlanError, RequestError, TemplateError, TokenizerError
from modelkit.modelfile import Quantizing, Recipe
from modelkit.pack.metadata import Metadata
from modelkit.problems import sentences_of
from modelkit.source.companion_files import TOKENIZER
from modelkit.source.inventory import Inventory
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.chat.capabilities import Capabilities
    from modelkit.chat.template import ChatTemplate
    from modelkit.pack.model_setup import ModelSetup
    from modelkit.pack.part import Part
    from modelkit.pack.planning.plan_types import Plan
    from modelkit.pack.sources import Source
    from modelkit.tokenizer import Tokenizer
    from runtime.models import Described

_WRAPPERS = {"_orig_mod.": "torch.compile", "module.": "DataParallel", "base_model.model.": "PEFT"}
"""What tensors' names begin with, where a wrapper around the model was saved."""


class DraftAlone(PlanError):
    """A draft that only runs inside its target, where a model was asked for."""


def refuse_searched(asked: Quantizing | None, draft: Quantizing | None) -> None:
    """Raise PlanError where formats would be found for weights that are not there before they are written, or
    for a draft of them. asked: of the target.
    """
    if draft and draft.auto:
        raise PlanError(
            "auto finds what is fastest with the target as its source has it, and the adapters are not in "
            "there yet",
            hint="Make a package with the adapters fused first, and name that in FROM; or name the draft's "
            "format, such as q4.",
        )
    if asked and asked.measures:
        raise PlanError(
            f"{asked} reads the model as its source has it, and the adapters are not in there yet",
            hint="Make a package with the adapters fused first, without a format, and name that in FROM.",
        )


def refuse_texts(target: "Part", recipe: Recipe) -> None:
    """Raise PlanError for lines about answers where the model gives none: it makes embeddings. recipe: as the
    user wrote it; what came with the model is noted (`check_placed`).
    """
    from runtime.models import describe

    if describe(target.plan.config).writes:
        return
    lines = {"TEMPLATE": recipe.template, "SYSTEM": recipe.system, "MESSAGE": recipe.messages}
    lines |= {"RENDERER": recipe.renderer, "PARSER": recipe.parser}
    origin = target.source.inventory.origin
    for name in (name for name, value in lines.items() if value):
        with recipe.at(name):
            raise PlanError(
                f"{origin} makes embeddings and writes no text: {name} has nothing to act on",
                hint=f"Take {name} out.",
            )


def check_requires(requires: str) -> None:
    """Raise PlanError when `requires` is newer than this version."""
    if _order(requires) > _order(__version__):
        raise PlanError(
            f"the model requires modelkit {requires}; this is {__version__}", hint="Install a newer modelkit."
        )


def _order(version: str) -> tuple[tuple[int, ...], bool]:
    """Sorts as versions do, a pre-release before its release."""
    numbers, dash, _ = version.partition("-")
    return tuple(int(number) for number in re.findall(r"\d+", numbers)[:3]), not dash


def check_parts(target: "Part", draft: "Part | None") -> tuple["Tokenizer", tuple[str, ...]]:
    """Their tokenizer, and notes. Raises unless target and draft can be run as planned, and together."""
    tokenizer, notes = check_target(target)
    return tokenizer, notes + (check_beside(draft, target, tokenizer) if draft else ())


def check_target(target: "Part") -> tuple["Tokenizer", tuple[str, ...]]:
    """Its tokenizer, and notes. Raises unless it can be run as planned."""
    from modelkit.pack.draft import check_rows

    inventory = target.source.inventory
    check_config(target.plan.config, f"the target {inventory.origin}")
    _refuse_alone(inventory.origin, target.plan.config)
    check_tensors(target.source, target.plan)
    tokenizer = _load_tokenizer(inventory)
    return tokenizer, (*_unused(target.plan), *check_rows(inventory.config, tokenizer, inventory.origin))


def check_beside(draft: "Part", target: "Part", tokenizer: "Tokenizer") -> tuple[str, ...]:
    """Notes on a draft. Raises unless it can be run as planned, with its target, whose `tokenizer` it is."""
    from modelkit.pack.draft import check_draft

    config = draft.plan.config
    check_config(config, f"the draft {draft.source.inventory.origin}")
    _check_pair(config, target.plan.config)
    check_tensors(draft.source, draft.plan)
    return check_draft(config, draft.source.inventory.files, tokenizer)


def check_settled(target: Inventory, draft: Inventory | None) -> "Tokenizer":
    """The tokenizer of a package that `create` made: it has compared tensors, tokens and configs with each
    other, and what depends on the version of this program is asked again. Raises as `check_parts` does.
    """
    check_config(target.config, f"the target {target.origin}")
    _refuse_alone(target.origin, target.config)
    if draft is not None:
        check_config(draft.config, f"the draft {draft.origin}")
        _check_pair(draft.config, target.config)
    return _load_tokenizer(target)


def _load_tokenizer(inventory: Inventory) -> "Tokenizer":
    from modelkit.tokenizer import load_tokenizer

    if TOKENIZER not in inventory.files:
        from modelkit.source.vocabularies.tokenizer_file import require_tokenizer

        require_tokenizer(inventory)
    try:
        return load_tokenizer(inventory.files)
    except TokenizerError as error:
        raise TokenizerError(f"{inventory.origin}: {error.message}", hint=error.hint) from error


def _refuse_alone(origin: str, config: Mapping[str, Any]) -> None:
    """Raise DraftAlone for a target that is a draft."""
    from runtime.models import describe
    from runtime.speculate.pair import runs_inside

    if runs_inside(describe(config)):
        raise DraftAlone(
            f"{origin} is a draft that only runs inside its target",
            hint="Name it by DRAFT, and its target by FROM.",
        )


def _check_pair(draft: Mapping[str, Any], target: Mapping[str, Any]) -> None:
    """Raise PlanError for a draft of another target's kind. draft, target: their configs."""
    from runtime.models import describe
    from runtime.speculate.pair import pair_problem

    problem = pair_problem(describe(draft), describe(target))
    if problem is not None:
        raise PlanError(f"the draft does not fit its target: {problem}")


@dataclass(frozen=True, slots=True)
class Template:
    """A chat template tried out."""

    source: str | None
    """Its jinja; None for a model without one."""
    capabilities: "Capabilities | None"
    """What it can do; None without a template that works."""
    notes: tuple[str, ...]
    """Sentences for the user."""


def check_template(
    ready: "ModelSetup", explicit: str | None, parser: str | None = None, *, writes: bool = True
) -> Template:
    """The template that the package will chat with, tried out: TEMPLATE's `explicit`, or the model's own.
    parser: of PARSER. writes: does the model write text?

    Raises TemplateError for an explicit one that does not work. A model with a broken template of its own is
    still good for plain prompts, so that is a note.
    """
    from modelkit.chat.capabilities import try_out

    if not writes:
        return Template(None, None, ("it makes embeddings and writes no text: ask it with `modelkit embed`",))
    if ready.template is None and ready.template_fault is None:
        return Template(None, None, ("the model has no chat template; it takes plain prompts only",))
    try:
        if ready.template is None:
            raise ready.template_fault or AssertionError("no template, and no reason")
        return Template(ready.template.source, try_out(ready.template, parser, ready.tokenizer.pieces), ())
    except TemplateError as error:
        if explicit is not None:
            raise
        note = (
            f"the model's chat template does not work here, so it takes plain prompts only: {error.message}"
        )
        return Template(None, None, (note,))


def check_thinking(ready: "ModelSetup", can: "Capabilities | None", think: str) -> None:
    """Raise PlanError for a parameter think with which each answer would be refused. can: of the template."""
    from modelkit.chat.styles.thinking import thinking_variables

    if can is not None and ready.template is not None:
        try:
            thinking_variables(can.style.style, ready.template, think)
        except RequestError as error:
            raise PlanError(error.message, hint=error.hint) from error


def check_reach(ready: "ModelSetup", can: "Capabilities | None", described: "Described") -> tuple[str, ...]:
    """Notes on parameters that ask for more than the model has. can: as in `check_thinking`."""
    from modelkit.chat.styles.thinking import idle
    from modelkit.pack.model_setup import context_of

    wanted = ready.parameters.resolved()
    _, notes = context_of(described.context_length, wanted.num_ctx)
    if not described.writes:
        return notes
    return notes + idle(wanted.think, wanted.think_tokens, can and can.thinks)


def check_draft_reach(draft: "Part | None", ready: "ModelSetup", described: "Described") -> tuple[str, ...]:
    """A note on a draft that reads less than the texts of its target may have. described: the target."""
    from modelkit.pack.model_setup import context_of
    from runtime.models import describe
    from runtime.speculate.pair import runs_inside

    own = describe(draft.plan.config) if draft else None
    if own is None or runs_inside(own):
        return ()
    longest, _ = context_of(described.context_length, ready.parameters.resolved().num_ctx)
    reads = own.context_length
    if reads >= longest:
        return ()
    return (f"the draft reads {reads:,} tokens and the model {longest:,}; longer texts go undrafted",)


def check_placed(
    template: Template, metadata: Metadata, ready: "ModelSetup", longest: int
) -> tuple[str, ...]:
    """Notes where SYSTEM or MESSAGE have no place in the template, or more of it than the context has: the
    package runs, but not as it reads. longest: tokens that the model takes.
    """
    from modelkit.chat.placement import inherited_notes
    from modelkit.chat.template import ChatTemplate
    from modelkit.pack.model_setup import context_of

    if template.source is None:
        return inherited_notes(None, metadata.system, metadata.messages)
    made = ChatTemplate.of(template.source, ready.tokenizer.specials)
    context, _ = context_of(longest, ready.parameters.resolved().num_ctx)
    notes = inherited_notes(made, metadata.system, metadata.messages)
    return notes + _filled(made, metadata, ready.tokenizer, context)


def _filled(
    template: "ChatTemplate", metadata: Metadata, tokenizer: "Tokenizer", context: int
) -> tuple[str, ...]:
    """A note where SYSTEM, or the MESSAGEs behind it, leave no room for a question and its answer."""
    from modelkit.chat.message import Message
    from modelkit.chat.rendering import Rendering

    system = [Message("system", metadata.system)] if metadata.system else []
    earlier = [Message(role, content) for role, content in metadata.messages]
    for own, called, then in (
        (system, "SYSTEM makes", "conversations that bring no system message of their own are refused"),
        ([*system, *earlier], "MESSAGE lines make", "some of these are left out of every conversation"),
    ):
        text = Rendering(template).tried([*own, Message("user", "?")]) or ""
        tokens = len(tokenizer.encode(text, add_special=False))
        if own and tokens >= context:
            return (f"{called} prompts of {tokens:,} tokens or more, and the context is {context:,}: {then}",)
    return ()


def check_config(config: Mapping[str, Any], called: str) -> None:
    """Raise PlanError unless an architecture here runs that config. called: what the message calls it."""
    from runtime.errors import RuntimeFault
    from runtime.models import describe

    try:
        describe(config)
    except RuntimeFault as error:
        raise PlanError(f"{called} cannot be run: {error}") from error


def check_tensors(source: "Source", plan: "Plan") -> None:
    """Raise PlanError unless the planned tensors are those of the planned config."""
    from runtime.errors import RuntimeFault
    from runtime.loading.forecast import check_weights

    origin = source.inventory.origin
    try:
        problems = check_weights(plan.config, plan.stored(), _widths(plan))
    except RuntimeFault as error:
        raise PlanError(f"the {plan.role} {origin} cannot be run: {error}") from error
    if problems:
        raise PlanError(
            f"the weights of {origin} do not fit its config.json: {sentences_of(problems)}",
            hint=_about_names(source.inventory.tensors),
        )


def _about_names(names: Collection[str]) -> str:
    """What to do about weights that do not fit."""
    for prefix, wrapper in _WRAPPERS.items():
        if all(name.startswith(prefix) for name in names):
            return f"Every name begins with `{prefix}`, as {wrapper} writes them: save the model inside."
    return "Take all files from the same model."


def _widths(plan: "Plan") -> dict[str, int]:
    """Of matrices that MLX packs: the lengths of their rows, as config.json has them."""
    return {tensor.name: tensor.shape[-1] for tensor in plan.tensors if tensor.outputs[0].dtype == "U32"}


def _unused(plan: "Plan") -> tuple[str, ...]:
    """What of a package will not be run, though it is kept."""
    from runtime.loading.unused import unused_parts
    from runtime.models import describe

    return unused_parts(describe(plan.config), plan.stored())


def architecture_of(config: Mapping[str, Any]) -> str:
    """What a checked config calls itself."""
    from runtime.models import architecture_name

    return architecture_name(config)
