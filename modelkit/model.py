"""A loaded model, as Python sees it: prompts and conversations in, text out.

This is where text meets numbers, and the door: arguments are read here (`arguments`, `options`), and what
leaves is a value or a ModelkitError, with names that the user knows. `running` does the work.
"""

import gc
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from modelkit import arguments
from modelkit.answers.generation import Generation
from modelkit.answers.streams import GenerationStream
from modelkit.chat.message import Message, read_messages
from modelkit.chat.rendering import Frame
from modelkit.chat.styles.thinking import Thinking
from modelkit.errors import RequestError
from modelkit.loaded import finalizer
from modelkit.loaded.embedding import EmbeddingOptions, Embeddings, read_texts
from modelkit.loaded.monitoring import Monitored
from modelkit.loaded.running import Running
from modelkit.loaded.startup import start
from modelkit.memory import Memory
from modelkit.modelfile import Parameters
from modelkit.modelfile.keywords import RequestParameters
from modelkit.opening import Opened
from modelkit.requests.attached import read_adapters
from modelkit.requests.options import (
    ChatOptions,
    GenerateOptions,
    GivenOptions,
    RequestOptions,
    ToolChoice,
    read_options,
)
from modelkit.requests.prompt import Prompt
from modelkit.settings import Settings
from modelkit.tokenizer.infill import infill
from runtime import device
from runtime.sampling.ranges import ID_LIMIT

if TYPE_CHECKING:
    import numpy as np

_MOST_STEP = 2**31 - 1


class Model(Monitored):
    """A loaded model. Safe to use from several threads: requests run side by side in one batch.

    After `close` every method raises ModelClosed; what is said below stays readable.
    """

    name: str
    """What was loaded."""
    notes: tuple[str, ...]
    """Sentences that the user should see once."""
    load_s: float
    """Seconds that loading took."""
    defaults: Parameters
    """The parameters that hold unless a request says otherwise."""
    context_length: int
    """Most tokens of prompt and answer together, or of a text where a model makes embeddings only."""
    memory: Memory
    """Bytes of weights, of one sequence that fills the context, and of cached prompts."""
    has_template: bool
    """Is there a chat template? Without one, `chat` is refused and `generate` takes the prompt as it is."""
    template: str | None
    """The text of the chat template; None where there is none."""
    adapters: tuple[str, ...]
    """Names of the package's adapters, in its order. All of them take part in an answer, at scale 1, unless a
    request says otherwise."""
    digest: str | None
    """Digest of the package's manifest, and so of everything in it; None for a folder."""
    writes: bool
    """Does it write text? False for an encoder such as BERT, which makes embeddings and nothing else."""
    start_id: int | None
    """The id that every answer begins with if an encoder reads the prompt (T5); None if the answer continues
    the prompt."""

    def __init__(
        self,
        opened: Opened,
        parameters: Parameters,
        settings: Settings,
        on_memory: Callable[[Memory, str | None], None] | None = None,
        on_weights: Callable[[int], object] | None = None,
    ) -> None:
        self.name = opened.label
        self.load_s, self.digest = 0.0, opened.package
        running = start(opened, parameters, settings, on_memory, on_weights)
        self.defaults, self.context_length = running.defaults, running.context_length
        self.memory, self.notes = running.memory, running.notes
        template = running.prompter.template
        self.has_template = template is not None
        self.template = None if template is None else template.source
        self.start_id, self.adapters, self.writes = running.start_id, running.adapters, running.writes
        self._running = running
        self._closing = threading.Lock()
        self._watched = finalizer.watch(self, running)

    def __enter__(self) -> "Model":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._running is None else f"{self.context_length:,} tokens of context"
        return f"<Model {self.name}, {state}>"

    def close(self) -> None:
        """Cancel running requests, free the memory, and save how well drafts did. Safe to call twice, and
        from any thread; it does nothing in a process that was forked from the model's.
        """
        with self._closing:
            if self._running is None:
                return
            self._watched.detach()
            if self._running.engine.elsewhere or sys.is_finalizing():  # at its end the program has ended it
                return
            self._running.close()
            self._running = None
            gc.collect()  # modules refer to each other; until they are collected their weights stay
            device.give_back()

    @overload
    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        stream: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> Generation: ...
    @overload
    def generate(
        self, prompt: str | Sequence[int], *, stream: Literal[True], **options: Unpack[GenerateOptions]
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
        logit_bias: Mapping[int, float] | None = None,
        adapters: Mapping[str, float] | Sequence[str] | None = None,
        context_length: int | None = None,
        template: str | None = None,
        stream: bool = False,
        **parameters: Unpack[RequestParameters],
    ) -> Generation | GenerationStream:
        """Answer one prompt.

        A text becomes a user's message of the chat template, after the package's system message. With
        raw=True, for a model without a template, and as token ids, the prompt goes to the model as it is.

        stream: return pieces of text as they come.
        format: "json", or a JSON schema that the answer will follow.
        grammar, regex: a grammar (Lark's syntax or GBNF) or a regular expression instead of format.
        top_logprobs: also report each token's log-probability, and those of the n likeliest.
        logit_bias: what is added to the logits of these token ids.
        adapters: names of adapters to use, or their scales ({"law": 0.8}); [] for none, by default all at
        scale 1.
        context_length: most tokens of prompt and answer together, if fewer than the model's.
        template: a chat template to use instead of the model's, as TEMPLATE in a Modelfile.
        parameters: PARAMETERs for this request.

        Raises RequestError, ParameterError, TemplateError.
        """
        running, streaming = self._templated(template), arguments.flag(stream, "stream")
        given = GivenOptions(format, grammar, regex, top_logprobs, logit_bias, adapters, context_length)
        asked = read_options(running.defaults, running.adapters, parameters, given)
        bare = arguments.flag(raw, "raw") or running.prompter.bare
        of_talk = {*parameters, *(() if template is None else ("template",))}
        for name in ("think", "think_tokens", "template"):
            if name in of_talk and (bare or not isinstance(prompt, str)):
                raise RequestError(f"{name} has no effect: the prompt goes to the model as it is")
        if "think_tokens" in parameters:
            running.check_budget(asked.resolved.think_tokens)
        continues = bare or not isinstance(prompt, str)
        read = _read(running, prompt, asked, bare=bare)
        answer = running.answer(read, asked, continuing=continues, holder=self)
        return answer if streaming else answer.whole()

    @overload
    def chat(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        stream: Literal[False] = False,
        **options: Unpack[ChatOptions],
    ) -> Generation: ...
    @overload
    def chat(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        stream: Literal[True],
        **options: Unpack[ChatOptions],
    ) -> GenerationStream: ...
    def chat(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str = "auto",
        parallel_tool_calls: bool = True,
        variables: Mapping[str, Any] | None = None,
        truncate: bool = True,
        continue_final: bool = False,
        format: str | Mapping[str, Any] | None = None,  # noqa: A002 -- as Ollama names it
        grammar: str | None = None,
        regex: str | None = None,
        top_logprobs: int | None = None,
        logit_bias: Mapping[int, float] | None = None,
        adapters: Mapping[str, float] | Sequence[str] | None = None,
        context_length: int | None = None,
        template: str | None = None,
        stream: bool = False,
        **parameters: Unpack[RequestParameters],
    ) -> Generation | GenerationStream:
        """Answer a conversation: messages with `role` and `content`, oldest first.

        The package's system message comes first, unless the conversation has its own, then the package's
        saved messages. Tools and messages that the chat template would leave out of the prompt are refused.

        tools: functions that the model may call, in OpenAI's format; arguments follow their schemas.
        tool_choice: "auto", "none", "required", or the name of the tool that must be called.
        parallel_tool_calls: may there be more than one call?
        variables: further variables of this model's template, such as enable_thinking.
        truncate: from a conversation that is too long for the context and an answer, leave out whole turns
        after those that `num_keep` protects; `dropped_messages` of the answer counts them. False refuses it.
        continue_final: continue the last message, which is the assistant's, and return what follows it.

        Everything else is as in `generate`. Raises RequestError, TemplateError, ParameterError.
        """
        running, streaming = self._templated(template), arguments.flag(stream, "stream")
        given = GivenOptions(format, grammar, regex, top_logprobs, logit_bias, adapters, context_length)
        asked = read_options(running.defaults, running.adapters, parameters, given)
        if "think_tokens" in parameters:
            running.check_budget(asked.resolved.think_tokens)
        fit = running.fit(asked.resolved, asked.context_length, truncate=arguments.flag(truncate, "truncate"))
        continues = arguments.flag(continue_final, "continue_final")
        frame = Frame(tools, variables, continues, asked.resolved.think)
        most = running.context(asked.context_length)
        prompt = running.prompter.chat(read_messages(messages), frame, fit, most)
        calling = ToolChoice(
            arguments.text(tool_choice, "tool_choice"),
            arguments.flag(parallel_tool_calls, "parallel_tool_calls"),
        )
        answer = running.answer(prompt, asked, calling, continuing=continues, holder=self)
        return answer if streaming else answer.whole()

    def logits(
        self,
        ids: Sequence[int],
        *,
        source: Sequence[int] = (),
        chunk: int | None = None,
        adapters: Mapping[str, float] | Sequence[str] | None = None,
    ) -> "np.ndarray":
        """The logits after each token, float32 [T, V], for scoring and evaluation.

        source: the prompt, for a model whose encoder reads it (T5); ids are then the answer's, beginning with
        `start_id`.
        chunk: process at most this many tokens per step; by default num_batch.
        adapters: as in `generate`.
        """
        running = self._open
        width = arguments.optional(_step, chunk, "chunk") or self.defaults.resolved().num_batch
        chosen = read_adapters(adapters, running.adapters)
        return running.score(arguments.ids(ids, "ids"), width, arguments.ids(source, "source"), chosen)

    def embed(
        self,
        texts: str | Sequence[int] | Sequence[str | Sequence[int]],
        *,
        dimensions: int | None = None,
        truncate: bool = True,
        normalize: bool = True,
        adapters: Mapping[str, float] | Sequence[str] | None = None,
        prompt_name: str | None = None,
    ) -> Embeddings:
        """A vector for each text: its hidden states, pooled as the model's files say, else their mean (for an
        encoder) or the last one. A text without tokens has a vector of zeros.

        texts: one or several; each a text, or token ids, which are read as they are.
        dimensions: keep only this many elements of each vector.
        truncate: cut the end off a text that is too long, and count the tokens in `dropped`; False refuses
        it (PromptTooLong).
        normalize: scale vectors to length 1.
        adapters: as in `generate`.
        prompt_name: which of the authors' prompts (sentence-transformers' `prompts`: "query", "document") to
        put before each text; by default the one that they made the default.

        Raises RequestError.
        """
        running = self._open
        wanted = EmbeddingOptions(
            arguments.optional(_step, dimensions, "dimensions"),
            arguments.flag(truncate, "truncate"),
            arguments.flag(normalize, "normalize"),
            read_adapters(adapters, running.adapters),
            arguments.optional(arguments.text, prompt_name, "prompt_name"),
        )
        return running.embed(read_texts(texts), wanted)

    @property
    def pooling(self) -> str:
        """How `embed` pools hidden states into a vector, and which file says so."""
        return self._open.embedder.pooling.description

    @property
    def thinking(self) -> Thinking:
        """Whether the model thinks before it answers, and what of that a request can change with `think`."""
        return self._open.prompter.thinking

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """The ids of a text. add_special: with the special tokens of a raw prompt, such as BOS; a text from
        `prompt` has them already.
        """
        framed = arguments.flag(add_special, "add_special")
        return self._open.tokenizer.encode(arguments.text(text, "text"), add_special=framed)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of ids. skip_special: leave special tokens out."""
        left_out = arguments.flag(skip_special, "skip_special")
        return self._open.tokenizer.decode(arguments.ids(ids, "ids"), skip_special=left_out)

    def token_bytes(self, id: int) -> bytes:  # noqa: A002 -- the field's word for it
        """What a token stands for within a text: UTF-8, of whole characters or of a part of one."""
        return self._open.tokenizer.bytes_of(arguments.whole(id, "id", 0, ID_LIMIT - 1))

    def infill(self, before: str, behind: str) -> list[int]:
        """The prompt for what stands between two texts, as ids for `generate`. Raises RequestError for a
        model that was not trained for it: its vocabulary has no tokens that mark a gap.
        """
        texts = arguments.text(before, "before"), arguments.text(behind, "behind")
        ids = infill(self._open.tokenizer, *texts)
        if ids is None:
            raise RequestError(f"{self.name} cannot fill a gap: its vocabulary has no tokens that mark one")
        return ids

    def prompt(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        truncate: bool = True,
        think: bool | str | None = None,
        continue_final: bool = False,
        template: str | None = None,
    ) -> str:
        """The text of the prompt that `chat` would give to the model. truncate, continue_final, template: as
        in `chat`, but nothing is too long. think: the parameter of that name.
        """
        running = self._templated(template)
        own = Parameters({} if think is None else {"think": think})
        held = running.defaults.merge(own).resolved()
        fit = running.fit(held, truncate=arguments.flag(truncate, "truncate"))
        frame = Frame(tools, variables, arguments.flag(continue_final, "continue_final"), held.think)
        return running.prompter.text(read_messages(messages), frame, fit)

    def _templated(self, template: object) -> Running:
        """Raises ModelClosed, TemplateError."""
        return self._open.templated(arguments.optional(arguments.text, template, "template"))


def _read(running: Running, prompt: str | Sequence[int], asked: RequestOptions, *, bare: bool) -> Prompt:
    """A text as a user's message, or as it is; token ids as they are."""
    if not isinstance(prompt, str):
        return Prompt(arguments.ids(prompt, "prompt", "token ids, or a text"))
    most = running.context(asked.context_length)
    if bare:
        return running.prompter.raw(prompt, most)
    fit = running.fit(asked.resolved, asked.context_length)
    return running.prompter.chat([Message("user", prompt)], Frame(think=asked.resolved.think), fit, most)


def _step(value: object, where: str) -> int:
    return arguments.whole(value, where, 1, _MOST_STEP)
