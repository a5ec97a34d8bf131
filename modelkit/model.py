"""A model ready to answer: engine, tokenizer and chat template behind one object.

This is the floor where text meets numbers. Everything below raises its own errors; what leaves here is an
error of modelkit.errors, with names the user knows.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from modelkit.chat.message import Message
from modelkit.errors import ParameterError, RequestError
from modelkit.generation import Generation, GenerationStream, sampling_of
from modelkit.grammar import Form, Grammars, read_form
from modelkit.memory import Memory
from modelkit.modelfile import PARAMETERS, Parameters, Resolved
from modelkit.opening import Opened, start_engine, template_of
from modelkit.prefixes import Prefix
from modelkit.prompt import Prompt, Prompter, read_messages
from modelkit.settings import Settings
from modelkit.tokenizer import StopStrings, TextStream, load_tokenizer
from runtime.cache.prefix import Entry
from runtime.engine.request import Request
from runtime.engine.thread import ThreadEnded
from runtime.errors import BadTokenIds, CacheFull
from runtime.loaded import score

if TYPE_CHECKING:
    import numpy as np

MOST_LOGPROBS = 20

# These are decided when a model is loaded; a request cannot change them.
_AT_LOAD = frozenset(name for name, row in PARAMETERS.items() if row.scope in ("context", "machine"))


class Model:
    """A loaded model. Safe to use from several threads: requests run side by side in one batch.

    name: what was loaded. notes: sentences that the user should see once. load_s: seconds that loading took.
    defaults: the parameters that hold unless a request says otherwise. context_length: in tokens. memory:
    bytes of weights, of one sequence of the whole context, and of what is kept of earlier prompts.
    """

    def __init__(
        self,
        opened: Opened,
        parameters: Parameters,
        settings: Settings,
        on_memory: Callable[[Memory, str | None], None] | None = None,
    ) -> None:
        self.name = opened.label
        self.load_s = 0.0
        self._tokenizer = load_tokenizer(opened.inventory.files)
        self._stop_ids = self._tokenizer.eos_ids(opened.inventory.generation_config, opened.inventory.config)
        self._suppressed = opened.suppressed
        template = template_of(opened.inventory.files, self._tokenizer)
        self._prompter = Prompter(self._tokenizer, template, opened.metadata)
        stops = self._prompter.stops()
        own = Parameters({"stop": stops} if stops else None)
        self.defaults = own.merge(opened.parameters).merge(parameters)
        started = start_engine(opened, self.defaults.resolved(), settings, on_memory)
        self._engine, self.context_length, self.memory = (
            started.engine,
            started.context_length,
            started.memory,
        )
        self._kv_format, self._learning = started.kv_format, started.learning
        self._grammars = Grammars(self._tokenizer, self._engine.model.vocab_size, self._stop_ids)
        self.notes = (*opened.notes, *started.notes, *self._own_notes())

    def __enter__(self) -> "Model":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what runs, give the memory back, and remember how well drafts did."""
        learning, self._learning = self._learning, None
        learned: Mapping[str, Any] = {}
        with suppress(ThreadEnded):
            learned = self._engine.learned() if learning else {}
        self._engine.close()
        if learning:
            learning.keep(learned)

    @property
    def has_template(self) -> bool:
        """Is there a chat template? Without one, `chat` is refused and `generate` takes the prompt as it
        is.
        """
        return self._prompter.template is not None

    @overload
    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        raw: bool = False,
        format: str | Mapping[str, Any] | None = None,
        grammar: str | None = None,
        regex: str | None = None,
        top_logprobs: int | None = None,
        stream: Literal[False] = False,
        **parameters: Any,
    ) -> Generation: ...
    @overload
    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        raw: bool = False,
        format: str | Mapping[str, Any] | None = None,
        grammar: str | None = None,
        regex: str | None = None,
        top_logprobs: int | None = None,
        stream: Literal[True],
        **parameters: Any,
    ) -> GenerationStream: ...
    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        raw: bool = False,
        format: str | Mapping[str, Any] | None = None,  # noqa: A002 -- as Ollama names it
        grammar: str | None = None,
        regex: str | None = None,
        top_logprobs: int | None = None,
        stream: bool = False,
        **parameters: Any,
    ) -> Generation | GenerationStream:
        """Answer one prompt.

        A text goes through the chat template as a user's message, with the package's system text; raw=True, a
        model without a template, or a prompt of token ids go to the model as they are. format: "json", or a
        JSON schema that the answer will follow; grammar: a text in Lark's syntax or in GBNF, regex: a regular
        expression instead. top_logprobs: also report each token's log-probability and those of the n
        likeliest. parameters: any PARAMETER of this request. Raises RequestError, ParameterError.
        """
        form = read_form(format, grammar, regex)
        if not isinstance(prompt, str):
            return self._answer(
                Prompt(tuple(prompt)),
                parameters,
                form,
                continuing=True,
                top_logprobs=top_logprobs,
                stream=stream,
            )
        if raw or not self.has_template:
            return self._answer(
                self._prompter.raw(prompt),
                parameters,
                form,
                continuing=True,
                top_logprobs=top_logprobs,
                stream=stream,
            )
        asked = self._prompter.chat([Message("user", prompt)], None, None)
        return self._answer(
            asked, parameters, form, continuing=False, top_logprobs=top_logprobs, stream=stream
        )

    @overload
    def chat(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        format: str | Mapping[str, Any] | None = None,
        grammar: str | None = None,
        regex: str | None = None,
        top_logprobs: int | None = None,
        stream: Literal[False] = False,
        **parameters: Any,
    ) -> Generation: ...
    @overload
    def chat(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        format: str | Mapping[str, Any] | None = None,
        grammar: str | None = None,
        regex: str | None = None,
        top_logprobs: int | None = None,
        stream: Literal[True],
        **parameters: Any,
    ) -> GenerationStream: ...
    def chat(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        format: str | Mapping[str, Any] | None = None,  # noqa: A002 -- as Ollama names it
        grammar: str | None = None,
        regex: str | None = None,
        top_logprobs: int | None = None,
        stream: bool = False,
        **parameters: Any,
    ) -> Generation | GenerationStream:
        """Answer a conversation: messages with `role` and `content`, oldest first.

        The package's system text comes first unless the conversation brings its own; its saved messages
        come next. variables: what this model's template reads beyond that, such as enable_thinking.
        format, grammar, regex: as in `generate`. Raises RequestError, TemplateError, ParameterError.
        """
        form = read_form(format, grammar, regex)
        prompt = self._prompter.chat(read_messages(messages), tools, variables)
        return self._answer(
            prompt, parameters, form, continuing=False, top_logprobs=top_logprobs, stream=stream
        )

    def logits(self, ids: Sequence[int], *, chunk: int | None = None) -> "np.ndarray":
        """What the model predicts after each token, float32 [T, V], for scoring and evaluation.

        chunk: read the ids in steps of this many tokens; by default in steps of num_batch.
        """
        width = self.defaults.resolved().num_batch if chunk is None else chunk
        if not ids or len(ids) > self.context_length or width < 1:
            raise RequestError(
                f"{len(ids)} ids in steps of {width}; "
                f"expected 1 to {self.context_length} ids and a positive step"
            )
        with _translated():
            return self._engine.call(lambda model: score(model, ids, width, self._kv_format))

    def prefixes(self) -> list[Prefix]:
        """What is kept in memory of earlier prompts: nodes of a tree, parents before children."""
        return [_prefix(entry) for entry in self._engine.list_prefixes()]

    def encode(self, text: str) -> list[int]:
        """The ids of a text as a raw prompt has them, with BOS where the model wants one."""
        return self._tokenizer.encode(text, add_special=True)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, special tokens left out."""
        return self._tokenizer.decode(ids)

    def prompt(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The text that `chat` would give to the model."""
        return self._prompter.text(read_messages(messages), tools, variables)

    def _answer(
        self,
        prompt: Prompt,
        parameters: Mapping[str, Any],
        form: Form | None,
        *,
        continuing: bool,
        top_logprobs: int | None,
        stream: bool,
    ) -> Generation | GenerationStream:
        """continuing: the answer goes on where the prompt's text ends, so a blank in front of it counts."""
        wanted = self._resolve(parameters)
        if top_logprobs is not None and (
            type(top_logprobs) is not int or not 0 <= top_logprobs <= MOST_LOGPROBS
        ):
            raise RequestError(f"top_logprobs is {top_logprobs!r:.40}, expected 0 to {MOST_LOGPROBS}")
        ids = prompt.ids
        if not ids:
            raise RequestError(
                "the prompt is empty: it has no tokens", hint="Give at least one character of text."
            )
        room = self.context_length - len(ids)
        if room < 1:
            raise RequestError(
                f"the prompt has {len(ids)} tokens and the context is {self.context_length}, answer included",
                hint="Shorten the prompt, or load the model with a larger num_ctx if it was lowered.",
            )
        tokens = room if wanted.num_predict < 0 else min(wanted.num_predict, room)
        sampling = sampling_of(wanted, self._suppressed)
        constraint = None if form is None else self._grammars.compile(form)
        text, stops = TextStream(self._tokenizer, continuing=continuing), StopStrings(wanted.stop)
        with _translated():
            request = Request(
                ids,
                tokens,
                sampling,
                self._stop_ids,
                top_logprobs=top_logprobs,
                draft_tokens=wanted.draft_num_predict,
                marks=prompt.marks,
                constraint=constraint,
            )
            answer = GenerationStream(self._engine.submit(request), text, stops, sampling.seed)
        return answer if stream else answer.whole()

    def _resolve(self, parameters: Mapping[str, Any]) -> Resolved:
        given = Parameters(parameters)
        late = sorted(_AT_LOAD & given.keys())
        if late:
            raise ParameterError(
                f"{', '.join(late)} cannot change for one request", hint="Set it when the model is loaded."
            )
        return self.defaults.merge(given).resolved()

    def _own_notes(self) -> tuple[str, ...]:
        if not self.has_template:
            return (f"{self.name} has no chat template; prompts go to the model as they are",)
        return ()


@contextmanager
def _translated() -> Generator[None]:
    """Errors of the floor below, in the words of this one."""
    try:
        yield
    except (BadTokenIds, CacheFull, ValueError) as fault:
        raise RequestError(str(fault)) from fault


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
