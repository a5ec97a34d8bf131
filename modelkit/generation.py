"""What a model answers: text with its ids and its cost, whole or piece by piece.

Between the engine, which knows ids, and the user, who reads text, stand two steps: ids become characters that
are never cut, and stop strings end the text where they begin.
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal

from modelkit.errors import RequestError
from modelkit.modelfile import Resolved
from modelkit.tokenizer import StopStrings, TextStream
from runtime.engine.request import Delta, Finish, TokenLogprob, Usage
from runtime.engine.stream import Stream
from runtime.errors import RuntimeFault
from runtime.sampling.params import SamplingParams

Reason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class Generation:
    """An answer.

    ids: every generated token, the stop token excluded; a stop string's own tokens are among them though not
    in `text`. reason: "stop" (the model ended, or a stop string came), "length" (num_predict or the context
    was reached), "cancelled" (the caller left). stop: the stop string found, if one was. seed: what makes the
    same text again.
    """

    text: str
    ids: tuple[int, ...]
    usage: Usage
    reason: Reason
    seed: int
    stop: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


class GenerationStream:
    """Pieces of text as they come. Iterate once; leaving early (break, close, `with`) cancels the generation.

    with model.generate("Once upon", stream=True) as pieces:
        for piece in pieces:
            print(piece, end="")
    print(pieces.result.usage)
    """

    def __init__(self, stream: Stream, text: TextStream, stops: StopStrings, seed: int) -> None:
        self._stream = stream
        self._text = text
        self._stops = stops
        self._seed = seed
        self._pieces: list[str] = []
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._iterator = self._run()

    def __iter__(self) -> Iterator[str]:
        return self._iterator

    def __enter__(self) -> "GenerationStream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel if still running."""
        self._stream.close()

    @property
    def result(self) -> Generation:
        """The answer up to now; complete once the iteration has ended."""
        finish = self._stream.finish or Finish("cancelled")
        found = self._stops.matched
        return Generation(
            text="".join(self._pieces),
            ids=tuple(self._ids),
            usage=replace(finish.usage, generated_tokens=len(self._ids)),
            reason="stop" if found is not None else finish.reason,
            seed=self._seed,
            stop=found,
            logprobs=tuple(self._logprobs),
        )

    def whole(self) -> Generation:
        """Wait for the end."""
        for _ in self:
            pass
        return self.result

    def _run(self) -> Iterator[str]:
        try:
            with self._stream:
                for delta in self._stream:
                    piece, ended = self._take(delta)
                    if piece:
                        self._pieces.append(piece)
                        yield piece
                    if ended:
                        return
            rest = self._rest()
            if rest:
                self._pieces.append(rest)
                yield rest
        except RuntimeFault as fault:
            raise RequestError(f"the generation ended early: {fault}") from fault
        finally:
            self._stream.close()

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
