"""What a model answers: text with its ids and its cost, whole or piece by piece.

Between the engine, which knows ids, and the user, who reads text, stand two steps: ids become characters that
are never cut, and stop strings end the text where they begin.
"""

import reprlib
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal

from modelkit.errors import ModelkitError, RequestError
from modelkit.faults import worded
from modelkit.modelfile import Resolved
from modelkit.room import Limit
from modelkit.tokenizer import StopStrings, TextStream
from runtime.engine.request import Delta, TokenLogprob, Usage
from runtime.engine.stream import Stream
from runtime.sampling.params import SamplingParams

Reason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class Generation:
    """An answer. `str(answer)`, and so `print(answer)`, is its text."""

    text: str
    ids: tuple[int, ...]
    """Every generated token but the stop token. Those of a stop string are among them, though not in
    `text`.
    """
    usage: Usage
    reason: Reason
    """"stop": the model ended, or a stop string came. "length": a limit was reached. "cancelled": the
    caller left.
    """
    seed: int
    """What makes the same text again."""
    stop: str | None = None
    """The stop string that was found, if one was."""
    logprobs: tuple[TokenLogprob, ...] = ()
    cut: Limit | None = None
    """Of the reason "length": "num_predict", or "context", where prompt and answer together fill the
    context (with the parameter context_shift it goes on: usage.dropped_tokens says what was forgotten).
    """
    dropped_messages: int = 0
    """Earlier messages of the conversation that were left out of the prompt, since all of them together
    outgrew the context.
    """

    @property
    def complete(self) -> bool:
        """The model itself ended the answer. One that was to follow a form (JSON, a grammar) follows it then
        to its end; any other is a beginning that may not parse.
        """
        return self.reason == "stop" and self.stop is None

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        ended = self.reason if self.cut is None else f"{self.reason} by {self.cut}"
        return f"<Generation {reprlib.repr(self.text)}, {len(self.ids)} tokens, {ended}>"


class GenerationStream:
    """Pieces of text as they come, once. One thread reads; any thread may `close`, at any moment, which ends
    the reader's loop. Leaving early (`with`, `close`, letting go of it) cancels the generation.
    dropped_messages: as in Generation.

    with model.generate("Once upon", stream=True) as pieces:
        for piece in pieces:
            print(piece, end="")
    print(pieces.result.usage)
    """

    def __init__(
        self,
        stream: Stream,
        text: TextStream,
        stops: StopStrings,
        seed: int,
        limit: Limit = "num_predict",
        dropped_messages: int = 0,
    ) -> None:
        self.dropped_messages = dropped_messages
        self._stream = stream
        self._text = text
        self._stops = stops
        self._seed = seed
        self._limit: Limit = limit
        self._pieces: list[str] = []
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._over = False
        self._fault: ModelkitError | None = None
        # One reader at a time. A signal handler may come back to a stream that its own thread is reading.
        self._reading = threading.RLock()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        with self._reading:
            try:
                while not self._over:
                    piece = self._advance()
                    if piece:
                        self._pieces.append(piece)
                        return piece
            except BaseException:
                self._stream.cancel()  # Ctrl-C may strike between two steps: going on would leave a gap
                raise
        raise StopIteration

    def __enter__(self) -> "GenerationStream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.cancel()  # an error or Ctrl-C goes on at once, without waiting for the engine's step

    def __del__(self) -> None:
        # On whatever thread the garbage collector runs, the engine's too: nothing here may wait.
        if "_stream" in self.__dict__:
            self._stream.cancel()

    def __repr__(self) -> str:
        over = self._over or self._stream.cancelled
        return f"<GenerationStream {'ended' if over else 'open'}, {len(self._ids)} tokens>"

    def cancel(self) -> None:
        """Want no more, and return at once. From any thread, at any moment."""
        self._stream.cancel()

    def close(self) -> None:
        """Cancel if still running, and wait until the engine has let go of it. From any thread, at any
        moment; a second time does nothing.
        """
        self._stream.close()

    @property
    def result(self) -> Generation:
        """The answer as far as it was read, once the iteration has ended or somebody has closed the stream.

        Raises RequestError before that, and what the iteration raised where it failed.
        """
        if not self._over and not self._stream.cancelled and not self._stream.ended:
            raise RequestError(
                "the answer has not ended, so it has no result yet",
                hint="Read the stream to its end, or close() it first.",
            )
        with self._reading:
            if self._fault is not None:
                raise self._fault
            finish, found = self._stream.close(), self._stops.matched
            reason = "stop" if found is not None else finish.reason
            return Generation(
                text="".join(self._pieces),
                ids=tuple(self._ids),
                usage=replace(finish.usage, generated_tokens=len(self._ids)),
                reason=reason,
                seed=self._seed,
                stop=found,
                logprobs=tuple(self._logprobs),
                cut=self._limit if reason == "length" else None,
                dropped_messages=self.dropped_messages,
            )

    def whole(self) -> Generation:
        """Wait for the end."""
        with self:
            for _ in self:
                pass
        return self.result

    def _advance(self) -> str:
        """The text of the next delta; sets `_over` where it was the last."""
        try:
            delta = self._stream.read()
        except Exception as error:
            self._over, self._fault = True, worded(error)
            raise self._fault from error
        if delta is None:
            self._over = True
            return "" if self._stream.cancelled else self._rest()
        piece, self._over = self._take(delta)
        if self._over:
            self._stream.close()
        return piece

    def _take(self, delta: Delta) -> tuple[str, bool]:
        out = ""
        for place, token in enumerate(delta.ids):
            self._ids.append(token)
            self._logprobs.extend(delta.logprobs[place : place + 1])
            piece, ended = self._stops.push(self._text.push(token))
            out += piece
            if ended:
                return out, True
        return out, False

    def _rest(self) -> str:
        """What was held back: an unfinished character, then a tail that might have become a stop string."""
        piece, ended = self._stops.push(self._text.finish())
        return piece if ended else piece + self._stops.finish()[0]


def sampling_of(wanted: Resolved, suppressed: tuple[int, ...] = ()) -> SamplingParams:
    """The sampling that these parameters ask for; without a seed, one is drawn here. suppressed: ids that the
    model's authors never want drawn.
    """
    return SamplingParams(
        temperature=wanted.temperature,
        top_k=wanted.top_k,
        top_p=wanted.top_p,
        min_p=wanted.min_p,
        typical_p=wanted.typical_p,
        repeat_penalty=wanted.repeat_penalty,
        repeat_last_n=wanted.repeat_last_n,
        presence_penalty=wanted.presence_penalty,
        frequency_penalty=wanted.frequency_penalty,
        seed=secrets.randbits(63) if wanted.seed < 0 else wanted.seed,
        suppressed=suppressed,
        draft_acceptance="rejection" if wanted.draft_acceptance == "rejection" else "coupled",
    )
