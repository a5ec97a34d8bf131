"""What stands behind a loaded model: engine, tokenizer, prompts and grammars, to be used and dropped as one.

Arguments were checked before they come here. Errors leave as ModelkitError.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modelkit.answers.generation import Beginning
from modelkit.answers.room import Room, room_for
from modelkit.answers.streams import GenerationStream
from modelkit.chat.styles.thinking import no_thinking
from modelkit.chat.truncation import PromptBudget
from modelkit.errors import PromptTooLong, RequestError
from modelkit.faults import translated
from modelkit.grammars.answers.shape import shape_of
from modelkit.learned import Learning
from modelkit.loaded.embedding import Embedder, EmbeddingOptions, Embeddings, no_text
from modelkit.loaded.long_work import LongWork
from modelkit.memory import Memory
from modelkit.modelfile import Parameters, Resolved
from modelkit.output.pieces import Pieces
from modelkit.output.splitter import Splitter, splitter_for
from modelkit.pack.languages import Languages, no_languages
from modelkit.prefixes import Prefix
from modelkit.requests.attached import Chosen
from modelkit.requests.options import RequestOptions, ToolChoice, idle_samplers, sampling_of
from modelkit.requests.prompt import Prompt, Prompter, Turn
from modelkit.tokenizer import Tokenizer
from runtime.cache.prefix import Entry
from runtime.engine.engine import Engine
from runtime.engine.request import Request
from runtime.engine.thread import ThreadEnded
from runtime.loaded import Scores
from runtime.records import dataclass
from runtime.sampling.params import SamplingParams

if TYPE_CHECKING:
    import numpy as np

    from modelkit.grammars.answers.thinking_budget import Budgeted
    from modelkit.grammars.compiling.compiler import Grammars
    from modelkit.grammars.compiling.grammar import Grammar
    from runtime.sampling.breakers import Breakers


@dataclass(frozen=True, slots=True)
class Running:
    """A loaded model at work."""

    engine: Engine
    work: LongWork
    """What is asked of it beside answers."""
    tokenizer: Tokenizer
    prompter: Prompter
    own_grammars: "Callable[[], Grammars]"
    """Those of this tokenizer, made when the first answer has a form."""
    own_breakers: "Callable[[tuple[str, ...]], Breakers]"
    """What repetitions are not followed across, of texts."""
    defaults: Parameters
    """The parameters that hold unless a request says otherwise."""
    context_length: int
    """In tokens, answer included."""
    memory: Memory
    embedder: Embedder
    stop_ids: frozenset[int]
    """They end a text."""
    suppressed: tuple[int, ...]
    """Ids that are never drawn."""
    kv_format: str | None
    """As in the engine's Options."""
    learning: Learning | None
    """Where what is learned about drafts is kept; None for nowhere."""
    notes: tuple[str, ...]
    """Sentences for the user."""
    start_id: int | None = None
    """What answers begin with where an encoder reads the prompt; None where they go on from it."""
    forced_id: int | None = None
    """What stands behind it; None for nothing."""
    languages: Languages | None = None
    """Those of a translator."""
    adapters: tuple[str, ...] = ()
    """The names of those that a request may have, in the package's order."""
    label: str = ""
    """What users call it."""
    writes: bool = True
    """Does it write text? False for one that makes embeddings and nothing else."""
    guesses: bool = True
    """Is anything drafted where a request wants it? Not if the model was loaded with draft_num_predict 0."""

    @property
    def grammars(self) -> "Grammars":
        return self.own_grammars()

    def embed(self, texts: Sequence[str | tuple[int, ...]], wanted: EmbeddingOptions) -> Embeddings:
        """Raises RequestError, and ModelClosed where the model is closed meanwhile."""
        with translated():
            return self.embedder.embed(texts, wanted)

    def require_text(self) -> None:
        """Raise RequestError for a model that writes none."""
        if not self.writes:
            raise no_text(self.label)

    def templated(self, text: str | None) -> "Running":
        """The same with the template of one request; None: with the model's own. Raises TemplateError, and
        RequestError for a model that writes no text.
        """
        self.require_text()
        if text is None:
            return self
        prompter = self.prompter.templated(text)
        return replace(self, prompter=prompter, defaults=stopping(prompter).merge(self.defaults))

    def answer(
        self,
        prompt: Prompt,
        asked: RequestOptions,
        calling: ToolChoice | None = None,
        *,
        continuing: bool,
        holder: object = None,
    ) -> GenerationStream:
        """Start an answer. continuing: it goes on where the prompt's text ends, so a blank in front of it
        counts. holder: as in GenerationStream. Raises RequestError, and ModelClosed where the model is closed
        meanwhile.
        """
        prompt, begins = self._spoken(prompt, asked.resolved)
        room = self._room(prompt, asked, len(begins))
        constraint = self._grammar(prompt.turn, asked, calling or ToolChoice())
        ids, source = (begins, prompt.ids) if begins else (prompt.ids, ())
        sampling = self._sampling(asked, len(ids))
        begun = Beginning(
            sampling.seed,
            room.limit,
            asked.resolved.stop,
            prompt.ids,
            prompt.dropped,
            json=asked.json,
            tools=() if prompt.turn is None else prompt.turn.tool_names,
            notes=(
                *(constraint.notes if constraint else ()),
                *self._unbounded(prompt.turn, asked),
                *idle_samplers(asked.resolved),
                *self._undrafted(asked.resolved),
            ),
        )
        with translated():
            request = Request(
                ids,
                room.tokens,
                sampling,
                self.stop_ids,
                top_logprobs=asked.top_logprobs,
                draft_tokens=asked.resolved.draft_num_predict,
                marks=prompt.marks,
                constraint=constraint,
                keep=room.keep,
                source=source,
                adapters=asked.adapters,
            )
            stream = self.engine.submit(request)
        pieces = Pieces(self.tokenizer, continuing=continuing and self.start_id is None)
        return GenerationStream(stream, pieces, begun, self._splitter(prompt.turn, asked), holder)

    def _sampling(self, asked: RequestOptions, begins: int) -> SamplingParams:
        """begins: where the first token of the answer stands."""
        wanted = asked.resolved
        texts = wanted.dry_sequence_breakers if wanted.dry_multiplier else ()
        return sampling_of(
            wanted,
            self.suppressed,
            asked.logit_bias,
            breakers=self.own_breakers(texts) if texts else None,
            ends=tuple(sorted(self.stop_ids)) if wanted.min_tokens else (),
            ends_from=begins + wanted.min_tokens,
        )

    def _splitter(self, turn: Turn | None, asked: RequestOptions) -> Splitter | None:
        """What tells thinking, text and calls apart; None where all of it is text."""
        if turn is None:
            return None
        style = self.prompter.style
        return splitter_for(style, turn.opening, turn.tools, turn.earlier_calls, json=asked.json)

    def check_budget(self, tokens: int) -> None:
        """think_tokens, as a request asks for it. Raises RequestError for a model that does not think."""
        if tokens > 0 and not self.prompter.thinking.can:
            raise no_thinking(f"think_tokens cannot be {tokens}")

    def fit(
        self, wanted: Resolved, context: int | None = None, *, truncate: bool = True
    ) -> PromptBudget | None:
        """What a conversation has to fit; None where nothing may be left out of it. context: as in
        RequestOptions.
        """
        return (
            PromptBudget.of(self.context(context), wanted.num_predict, wanted.num_keep) if truncate else None
        )

    def _grammar(
        self, turn: Turn | None, asked: RequestOptions, calling: ToolChoice
    ) -> "Grammar | Budgeted | None":
        """What the answer follows; None where it may be anything."""
        if turn is None:
            return None if asked.form is None else self.grammars.compile(asked.form)
        shape = shape_of(
            self.prompter.style, turn.opening, turn.tools, calling.choice, calling.parallel, asked.form
        )
        most = asked.resolved.think_tokens
        if shape is None and most < 0:
            return None
        grammar = None if shape is None else self.grammars.shaped(shape)
        calls = () if calling.choice == "none" else turn.tool_names
        return self.grammars.budgeted(grammar, self.prompter.style, turn.opening, most, calls=calls)

    def _unbounded(self, turn: Turn | None, asked: RequestOptions) -> tuple[str, ...]:
        """What is said where think_tokens cannot hold although the model thinks."""
        if turn is None or asked.resolved.think_tokens < 0 or not self.prompter.thinking.can:
            return ()
        if turn.opening.place == "text" or self.grammars.can_budget(self.prompter.style):
            return ()
        return ("think_tokens does not hold: with which mark this model ends its thinking is not known",)

    def _undrafted(self, wanted: Resolved) -> tuple[str, ...]:
        """What is said where drafts are asked for and none were loaded."""
        if self.guesses or not wanted.draft_num_predict:
            return ()
        idle = f"draft_num_predict {wanted.draft_num_predict} does nothing"
        return (f"{idle}: the model was loaded with draft_num_predict 0, and so without drafts",)

    def context(self, wanted: int | None) -> int:
        """Tokens of prompt and answer together. wanted: what a request asks for; None for all there are."""
        return self.context_length if wanted is None else min(wanted, self.context_length)

    def score(
        self, ids: tuple[int, ...], width: int, source: tuple[int, ...], adapters: Chosen = ()
    ) -> "np.ndarray":
        """float32 [T, V]: what follows each of the ids, read in steps of `width` at most, by a model whose
        encoder has read `source`.
        """
        self.require_text()
        if not ids:
            raise RequestError("ids is empty: the prompt has no token, expected at least one")
        if len(ids) > self.context_length:
            said = f"{len(ids):,} ids are more than the context of {self.context_length:,} tokens"
            raise PromptTooLong(said, prompt_tokens=len(ids), context_tokens=self.context_length)
        if self.start_id is None and source:
            raise RequestError(
                "source has ids, and this model has no encoder to read them",
                hint="Put the prompt in front of ids.",
            )
        if self.start_id is not None and not 0 < len(source) <= self.context_length:
            raise RequestError(
                f"source has {len(source):,} ids; expected 1 to {self.context_length:,}: an encoder reads "
                f"the prompt, and ids are the answer's, from the id {self.start_id} on that all begin with",
                hint="Give the prompt's ids as source.",
            )
        with translated():
            scores = self.work.piece(
                lambda model: Scores(model, ids, self.kv_format, source, self.engine.adapters.alone(adapters))
            )
            while not scores.over:
                self.work.read(scores.read, width)
            return scores.logits()

    def prefixes(self) -> list[Prefix]:
        with translated():
            return [_prefix(entry) for entry in self.engine.list_prefixes()]

    def limit_prefixes(self, limit_bytes: int) -> int:
        with translated():
            return self.engine.limit_prefixes(limit_bytes)

    def close(self) -> None:
        """Cancel what runs, stop the engine, and remember how well drafts did. Safe to call twice."""
        learned: Mapping[str, Any] = {}
        with suppress(ThreadEnded):  # an engine that has died teaches nothing
            learned = self.engine.learned() if self.learning else {}
        self.engine.close()
        if self.learning:
            self.learning.keep(learned)

    def _spoken(self, prompt: Prompt, wanted: Resolved) -> tuple[Prompt, tuple[int, ...]]:
        """The prompt, and the ids that its answer begins with where an encoder reads it, in the languages
        asked for.
        """
        begins = tuple(one for one in (self.start_id, self.forced_id) if one is not None)
        named = {"source_language": wanted.source_language, "target_language": wanted.target_language}
        if self.languages is None:
            for name in (name for name, code in named.items() if code is not None):
                raise no_languages(name)
            return prompt, begins
        ids, begins = self.languages.spoken(prompt.ids, begins, *named.values())
        return replace(prompt, ids=ids), begins

    def _room(self, prompt: Prompt, asked: RequestOptions, begins: int) -> Room:
        """Prompt and answer share the context, but where an encoder reads the prompt each has all of it.
        begins: ids that the answer has already.
        """
        if not prompt.ids:
            raise RequestError(
                "the prompt is empty: it has no tokens", hint="Give at least one character of text."
            )
        read = begins or len(prompt.ids)
        context = self.context(asked.context_length)
        room = room_for(read, context, asked.resolved)
        if room is None or len(prompt.ids) > context:
            raise _too_long(prompt, context, shared=self.start_id is None)
        return room


def stopping(prompter: Prompter) -> Parameters:
    """The stop strings of its template, as a parameter."""
    stops = prompter.stops()
    return Parameters({"stop": stops} if stops else None)


def _too_long(prompt: Prompt, context: int, *, shared: bool) -> PromptTooLong:
    """For a prompt that leaves no room for one token of answer. shared: both share the context."""
    both, size = ", answer included" if shared else "", prompt.estimate or len(prompt.ids)
    about = "about " if prompt.estimate else ""
    said = f"the prompt has {about}{size:,} tokens and the context is {context:,}{both}"
    hint = "Shorten the prompt, or load the model with a larger num_ctx if it was lowered."
    if prompt.dropped:
        left = "message was" if prompt.dropped == 1 else "messages were"
        said = (
            f"{said}; {prompt.dropped} earlier {left} left out already; the system message and what came "
            "last stay"
        )
        hint = "Shorten the last message, or load the model with a larger num_ctx if it was lowered."
    return PromptTooLong(said, prompt_tokens=size, context_tokens=context, hint=hint)


def _prefix(entry: Entry) -> Prefix:
    return Prefix(
        depth=entry.depth,
        start=entry.start,
        stop=entry.stop,
        size_bytes=entry.nbytes,
        used_at_s=entry.used_at_s,
        ids=tuple(key for key in entry.keys if isinstance(key, int)),
        resumable=entry.resumable,
        users=entry.pins,
        space=entry.space,
    )
