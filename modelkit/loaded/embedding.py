"""Texts in, one vector for each out: which texts are read together, and what is made of their vectors.

Reading is long work (`long_work`), and nothing of it is remembered.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from modelkit import arguments
from modelkit.errors import PromptTooLong, RequestError
from modelkit.interest import check_wanted
from modelkit.loaded.long_work import LongWork
from modelkit.pack.pooling import Pooling
from modelkit.requests.attached import Chosen
from modelkit.tokenizer import Tokenizer
from runtime.embedding import Pool, Reading
from runtime.engine.engine import Engine
from runtime.loaded import LoadedModel, check_ids
from runtime.nn.feed_forward.dense import Dense, Weights
from runtime.records import dataclass

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Embeddings:
    """What `Model.embed` gives: a row for each text, in their order."""

    vectors: "np.ndarray"
    """float32 [N, D]."""
    tokens: tuple[int, ...]
    """How many of each text were read."""
    dropped: tuple[int, ...]
    """How many of each were cut off."""
    pooling: Pool
    """How a text's tokens become its vector: "mean", "last", "first", "max", "weighted" or "root"."""

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class EmbeddingOptions:
    """What a caller asks for."""

    dimensions: int | None
    """Elements of each vector; None: all there are."""
    truncate: bool
    """Cut what is too long; else refuse it."""
    normalize: bool
    """To length 1."""
    adapters: Chosen = ()
    """Of the package, with their scales."""
    prompt: str | None = None
    """The name of what stands before each text; None: as the model's authors have it."""


def read_texts(texts: object) -> list[str | tuple[int, ...]]:
    """What a caller hands in: a text or its ids, or several of either. Raises RequestError."""
    if isinstance(texts, str):
        return [texts]
    given = list(arguments.elements(texts, "texts", "texts, or one text"))
    if given and not isinstance(given[0], str) and not isinstance(given[0], Iterable):
        return [arguments.ids(given, "texts")]
    return [
        one if isinstance(one, str) else arguments.ids(one, f"texts[{place}]")
        for place, one in enumerate(given)
    ]


def no_text(name: str) -> RequestError:
    """For whoever asks a model for text that makes embeddings and nothing else."""
    return RequestError(
        f"{name} makes embeddings and writes no text",
        hint="Use `modelkit embed`, Model.embed, /v1/embeddings or /api/embed.",
    )


class Embedder:
    """Makes embeddings with a loaded model. width: tokens of one piece. context: most of one text. dense: the
    weights of what `pooling` has behind it.
    """

    def __init__(
        self,
        engine: Engine,
        work: LongWork,
        tokenizer: Tokenizer,
        pooling: Pooling,
        *,
        width: int,
        context: int,
        kept_format: str | None,
        dense: Sequence[Weights] = (),
    ) -> None:
        self._engine, self._work = engine, work
        self._tokenizer, self.pooling = tokenizer, pooling
        self._width, self._kept_format = width, kept_format
        self._limit = pooling.limit(context)
        self._size = pooling.size(engine.model.described.hidden_size)
        self._dense: tuple[Dense, ...] = ()
        if dense:
            self._dense = engine.call(lambda _: tuple(map(Dense, dense)))

    def embed(self, texts: Sequence[str | tuple[int, ...]], wanted: EmbeddingOptions) -> Embeddings:
        """Raises RequestError, PromptTooLong; ThreadEnded where the engine has ended."""
        import numpy as np

        if self.pooling.problem is not None:
            raise RequestError(f"this model makes no embeddings: {self.pooling.problem}")
        if wanted.dimensions is not None and wanted.dimensions > self._size:
            raise RequestError(
                f"dimensions is {wanted.dimensions}, and this model's vectors have {self._size}"
            )
        before = self.pooling.before(wanted.prompt)
        if len(texts) > 1:
            self._check_ids(texts)
        read = [self._ids(text, f"texts[{place}]", wanted, before) for place, text in enumerate(texts)]
        behind = self.pooling.skipped(before, self._tokenizer)
        skipped = [behind if isinstance(text, str) else 0 for text in texts]
        lengths = [len(ids) * (len(ids) > out) for (ids, _), out in zip(read, skipped, strict=True)]
        vectors = np.zeros((len(read), self._size), np.float32)
        for group in grouped(lengths, lambda: self._work.allowed(self._width)):
            if lengths[group[0]]:  # nothing was read of the others, so theirs say nothing
                some, out = [read[place][0] for place in group], [skipped[place] for place in group]
                vectors[group] = self._read(some, out, wanted.adapters)
        return Embeddings(
            _shaped(vectors, wanted),
            tuple(len(ids) for ids, _ in read),
            tuple(dropped for _, dropped in read),
            self.pooling.pool,
        )

    def _check_ids(self, texts: Sequence[str | tuple[int, ...]]) -> None:
        """Which of them has an id that is none is said here: they are read in groups."""
        for place, text in enumerate(texts):
            if not isinstance(text, str):
                check_ids(text[: self._limit], self._engine.model.vocab_size, f"texts[{place}]")

    def _ids(
        self, text: str | tuple[int, ...], where: str, wanted: EmbeddingOptions, before: str
    ) -> tuple[Sequence[int], int]:
        """What is read of a text, and how many tokens of it are not. where: what the text is called. before:
        what stands before it.
        """
        check_wanted()
        if isinstance(text, str):
            ids, dropped = self._tokenizer.encode_within(self.pooling.plain(before + text), self._limit)
        elif wanted.prompt is not None:
            raise RequestError(f"prompt_name has no effect on {where}, which is token ids")
        else:
            ids, dropped = text[: self._limit], max(len(text) - self._limit, 0)
        if dropped and not wanted.truncate:
            size = len(ids) + dropped
            raise PromptTooLong(
                f"{where} has {size:,} tokens; at most {self._limit:,} are read of a text",
                prompt_tokens=size,
                context_tokens=self._limit,
                hint="Shorten it, or allow it to be cut (truncate).",
            )
        return ids, dropped

    def _read(self, texts: list[Sequence[int]], skipped: list[int], chosen: Chosen) -> "np.ndarray":
        """float32 [B, D]."""
        adapters = self._engine.adapters

        def begun(model: LoadedModel) -> Reading:
            some = adapters.alone(chosen, len(texts))
            return Reading(model, texts, self.pooling.pool, self._kept_format, some, self._dense, skipped)

        reading = self._work.piece(begun)
        while not reading.over:
            self._work.read(reading.read, self._width)
        return self._engine.call(lambda _: reading.vectors())


def grouped(lengths: Sequence[int], width: Callable[[], int]) -> Iterator[list[int]]:
    """Which texts are read together, as places: padded to the longest they fit in one piece of `width`
    tokens, asked anew for each, but for one that is longer alone. Alike lengths come together, so that little
    is padded.
    """
    group = list[int]()
    longest = most = 0
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        # Texts without tokens are a group of their own.
        together = bool(group) and (lengths[place] > 0) == (longest > 0)
        if not together or (len(group) + 1) * longest > most:
            if group:
                yield group
            group, longest, most = [], lengths[place], width()
        group.append(place)
    if group:
        yield group


def _shaped(vectors: "np.ndarray", wanted: EmbeddingOptions) -> "np.ndarray":
    """Cut to the elements that are wanted, then to length 1; a vector of zeros stays one."""
    import numpy as np

    if wanted.dimensions is not None:
        vectors = np.ascontiguousarray(vectors[:, : wanted.dimensions])
    if not wanted.normalize:
        return vectors
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
