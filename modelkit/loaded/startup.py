"""From a model that was opened to one at work: its engine is started, and all that stands around it made."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from modelkit.chat.find import NO_TEMPLATE
from modelkit.chat.styles.thinking import idle
from modelkit.loaded.embedding import Embedder
from modelkit.loaded.long_work import LongWork
from modelkit.loaded.running import Running, stopping
from modelkit.memory import Memory
from modelkit.modelfile import Parameters
from modelkit.opening import Opened, start_engine
from modelkit.requests.prompt import Prompter
from modelkit.settings import Settings
from modelkit.tokenizer import Tokenizer

if TYPE_CHECKING:
    from modelkit.grammars.compiling.compiler import Grammars
    from runtime.sampling.breakers import Breakers


def start(
    opened: Opened,
    parameters: Parameters,
    settings: Settings,
    on_memory: Callable[[Memory, str | None], None] | None = None,
    on_weights: Callable[[int], object] | None = None,
) -> Running:
    """Load what was opened. Raises LoadError, TokenizerError, TemplateError."""
    ready = opened.ready
    prompter = Prompter(ready.tokenizer, ready.template, opened.metadata, ready.template_fault)
    dense = [one.read() for one in ready.pooling.dense]  # before there is an engine that would have to end
    defaults = stopping(prompter).merge(ready.parameters).merge(parameters)
    started = start_engine(opened, defaults.resolved(), settings, on_memory, on_weights)
    writes = started.engine.model.described.writes
    stop_ids, work = ready.stop_ids | _ends(prompter), LongWork(started.engine)
    return Running(
        engine=started.engine,
        work=work,
        tokenizer=ready.tokenizer,
        prompter=prompter,
        own_grammars=_grammars(ready.tokenizer, started.engine.model.vocab_size, stop_ids),
        own_breakers=_breakers(ready.tokenizer),
        defaults=defaults,
        context_length=started.context_length,
        memory=started.memory,
        embedder=Embedder(
            started.engine,
            work,
            ready.tokenizer,
            ready.pooling,
            width=defaults.resolved().num_batch,
            context=started.context_length,
            kept_format=started.kv_format,
            dense=dense,
        ),
        stop_ids=stop_ids,
        suppressed=ready.suppressed,
        kv_format=started.kv_format,
        learning=started.learning,
        notes=(*opened.notes, *started.notes, *(_notes(opened.label, prompter, defaults) if writes else ())),
        start_id=ready.start_id,
        forced_id=ready.forced_id,
        languages=ready.languages,
        label=opened.label,
        writes=writes,
        guesses=started.guesses,
        adapters=tuple(adapter.name for adapter in opened.adapters),
    )


def _grammars(tokenizer: Tokenizer, vocab_size: int, stop_ids: frozenset[int]) -> "Callable[[], Grammars]":
    @cache  # two threads may make the first ones at once, and each of the two works
    def made() -> "Grammars":
        # 35 modules, which most answers can do without.
        from modelkit.grammars.compiling.compiler import Grammars

        return Grammars(tokenizer, vocab_size, stop_ids)

    return made


def _breakers(tokenizer: Tokenizer) -> "Callable[[tuple[str, ...]], Breakers]":
    @cache
    def pieces() -> list[bytes]:
        return tokenizer.bytes_of_all(tokenizer.vocab_size)

    def made(texts: tuple[str, ...]) -> "Breakers":
        from modelkit.tokenizer.breakers import TextBreakers  # few answers need it

        return TextBreakers(texts, pieces())

    return made


def _ends(prompter: Prompter) -> frozenset[int]:
    """Tokens that end an answer in the model's style, besides those that its files name."""
    texts = () if prompter.style is None else prompter.style.stops
    ids = map(prompter.tokenizer.piece_to_id, texts)
    return frozenset(one for one in ids if one is not None)


def _notes(label: str, prompter: Prompter, defaults: Parameters) -> tuple[str, ...]:
    wanted, found = defaults.resolved(), None if prompter.template is None else prompter.thinking
    own = (*prompter.notes(), *idle(wanted.think, wanted.think_tokens, found))
    if prompter.bare:
        return (f"{label} {NO_TEMPLATE}", *own)
    broken = () if prompter.fault is None else (f"{label} takes no conversations: {prompter.fault.message}",)
    return (*broken, *own)
