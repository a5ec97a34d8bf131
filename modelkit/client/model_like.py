"""What a loaded model offers to whoever talks to it, whether it is in this process or in a server."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

if TYPE_CHECKING:
    from modelkit.answers.generation import Finish, Generation
    from modelkit.chat.message import Message
    from modelkit.memory import Memory
    from modelkit.modelfile import Parameters
    from modelkit.output.events import Event
    from modelkit.prefixes import Prefix
    from runtime.engine.request import PromptProgress


class Answer(Protocol):
    """An answer as it comes: `modelkit.GenerationStream` has more."""

    @property
    def result(self) -> "Generation": ...
    @property
    def progress(self) -> "PromptProgress | None": ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __iter__(self) -> Iterator[str]: ...
    def events(self) -> "Iterable[Event | Finish]": ...
    def whole(self) -> "Generation": ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...


class ModelLike(Protocol):
    """A loaded model: see `modelkit.Model`."""

    name: str
    notes: tuple[str, ...]
    load_s: float
    defaults: "Parameters"
    context_length: int
    memory: "Memory"
    has_template: bool
    writes: bool
    adapters: tuple[str, ...]

    @property
    def threads(self) -> str | None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def chat(
        self, messages: "Iterable[Message | Mapping[str, Any]]", *, stream: Literal[True], **options: Any
    ) -> Answer: ...
    def generate(self, prompt: str | Sequence[int], *, stream: Literal[True], **options: Any) -> Answer: ...
    def prefixes(self) -> "list[Prefix]": ...
    def decode(self, ids: Iterable[int]) -> str: ...
    def close(self) -> None: ...
