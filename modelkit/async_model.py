"""A loaded model for event loops: the same requests as `Model`, to be awaited.

What takes longer than a moment before the first token (rendering and tokenizing a prompt, compiling a
grammar) runs in a worker thread; from then on the engine wakes the loop, once per step at most. Nothing
here waits on the loop's thread, which imports nothing large either: MLX comes with the first model, in the
worker that loads it.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from modelkit.bound import Bound
from modelkit.interest import Interest

if TYPE_CHECKING:
    from modelkit.answers.generation import Generation
    from modelkit.answers.streams import GenerationStream
    from modelkit.chat.message import Message
    from modelkit.load_options import LoadOptions
    from modelkit.loaded.embedding import Embeddings
    from modelkit.model import Model
    from modelkit.requests.options import ChatOptions, GenerateOptions

T = TypeVar("T")


_workers: ThreadPoolExecutor


def _hire() -> None:
    """Of a process that was forked none of the parent's threads works, which their pool does not know."""
    global _workers
    _workers = ThreadPoolExecutor(8, thread_name_prefix="modelkit-async")


_hire()
os.register_at_fork(after_in_child=_hire)


class AsyncModel(Bound):
    """Wraps a Model, which stays usable beside it.

    async with await AsyncModel.load("qwen") as model:
        answer = await model.chat([{"role": "user", "content": "Why is the sky blue?"}])
        async for text in await model.generate("Once upon a time", stream=True):
            print(text, end="")

    A task that is cancelled while it waits cancels the answer. Raises what Model raises.
    """

    def __init__(self, model: "Model") -> None:
        self.model = model

    @classmethod
    async def load(cls, name: str | os.PathLike[str], **options: Unpack["LoadOptions"]) -> "AsyncModel":
        """As `modelkit.load`, with its options, in a worker thread."""

        def made() -> "Model":
            from modelkit.verbs import load

            return load(name, **options)

        return cls(await _called(made, lambda model: model.close()))

    async def __aenter__(self) -> "AsyncModel":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncModel of {self.model!r}>"

    async def close(self) -> None:
        """As `Model.close`."""
        await _called(self.model.close, lambda _: None)

    @overload
    async def generate(
        self,
        prompt: str | Sequence[int],
        *,
        stream: Literal[False] = False,
        **options: Unpack["GenerateOptions"],
    ) -> "Generation": ...
    @overload
    async def generate(
        self, prompt: str | Sequence[int], *, stream: Literal[True], **options: Unpack["GenerateOptions"]
    ) -> "GenerationStream": ...
    async def generate(
        self, prompt: str | Sequence[int], *, stream: bool = False, **options: Unpack["GenerateOptions"]
    ) -> "Generation | GenerationStream":
        """As `Model.generate`. A stream is for `async for`."""
        started = await _started(lambda: self.model.generate(prompt, stream=True, **options))
        return started if stream else await _whole(started)

    @overload
    async def chat(
        self,
        messages: "Iterable[Message | Mapping[str, Any]]",
        *,
        stream: Literal[False] = False,
        **options: Unpack["ChatOptions"],
    ) -> "Generation": ...
    @overload
    async def chat(
        self,
        messages: "Iterable[Message | Mapping[str, Any]]",
        *,
        stream: Literal[True],
        **options: Unpack["ChatOptions"],
    ) -> "GenerationStream": ...
    async def chat(
        self,
        messages: "Iterable[Message | Mapping[str, Any]]",
        *,
        stream: bool = False,
        **options: Unpack["ChatOptions"],
    ) -> "Generation | GenerationStream":
        """As `Model.chat`. A stream is for `async for`."""
        started = await _started(lambda: self.model.chat(messages, stream=True, **options))
        return started if stream else await _whole(started)

    async def embed(
        self,
        texts: str | Sequence[int] | Sequence[str | Sequence[int]],
        *,
        dimensions: int | None = None,
        truncate: bool = True,
        normalize: bool = True,
        adapters: Mapping[str, float] | Sequence[str] | None = None,
        prompt_name: str | None = None,
    ) -> "Embeddings":
        """As `Model.embed`. Where the task is cancelled, it ends with the piece that is being read."""
        return await _called(
            lambda: self.model.embed(
                texts,
                dimensions=dimensions,
                truncate=truncate,
                normalize=normalize,
                adapters=adapters,
                prompt_name=prompt_name,
            ),
            lambda _: None,
        )


async def _started(start: "Callable[[], GenerationStream]") -> "GenerationStream":
    return await _called(start, lambda stream: stream.cancel())


async def _called(function: Callable[[], T], undo: Callable[[T], object]) -> T:
    """What the function gives, from a worker thread. Where nobody waits for it any more, what it makes is
    undone.
    """
    interest = Interest()
    made = _workers.submit(interest.work, function)
    try:
        return await asyncio.wrap_future(made)
    except asyncio.CancelledError:
        interest.end()
        made.add_done_callback(lambda late: _undo(late, undo))  # at once where it is done already
        raise


def _undo(late: "Future[T]", undo: Callable[[T], object]) -> None:
    if not late.cancelled() and late.exception() is None:
        undo(late.result())


async def _whole(stream: "GenerationStream") -> "Generation":
    from modelkit.answers.generation import Finish  # there already, with the stream

    async for events in stream.batches():
        if isinstance(events[-1], Finish):
            return events[-1].answer
    return stream.result  # somebody has closed it
