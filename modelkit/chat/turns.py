"""Which messages of a conversation are left out once it has outgrown the context.

A conversation loses whole turns, so that a template still finds one that it could have been asked: a message
of the user goes together with the answers and tool results behind it. The opening (system, developer) always
stays, the first turns stay as long as they can, and so does the last message of the user with the last step
behind it; of a long chain of tool calls after that message the earlier steps can go. Instructions in the
middle (system, developer) stay where they are.

What goes is found by having the conversation again: whenever it came to its limit, the oldest half of what
could go was left out. So the same messages are left out at the next question and the one after it, what was
computed of the rest is found again, and only now and then is there something new to read.

Pure: sizes come in, places go out.
"""

from collections.abc import Sequence

from modelkit.chat.message import Message
from runtime.records import dataclass

OPENING = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Unit:
    """Messages [start, stop) of a conversation that stay or go together."""

    start: int
    stop: int
    asked: int
    """How many of them were there when the model was asked, which is when a limit counts."""
    firm: bool = False
    """They stay. Whoever sets `OPENING` apart finds such messages inside units as well: those stay anyway.
    """


def opening(messages: Sequence[Message]) -> int:
    """How many messages come before the first turn."""
    return next((place for place, one in enumerate(messages) if one.role not in OPENING), len(messages))


def units(messages: Sequence[Message]) -> list[Unit]:
    """All that follows the opening, in order: the turns, and of the last one each step apart."""
    first = opening(messages)
    asks = [place for place in range(first, len(messages)) if messages[place].role == "user"]
    starts = sorted({first, *asks}) if first < len(messages) else []
    turns = [Unit(start, stop, 1) for start, stop in zip(starts, [*starts[1:], len(messages)], strict=True)]
    return turns[:-1] + _steps(messages, turns[-1]) if turns else []


def _steps(messages: Sequence[Message], turn: Unit) -> list[Unit]:
    """The last turn: what was asked, and each step towards its answer, of which all but the last can go."""
    places = range(turn.start + 1, turn.stop)
    starts = [turn.start, *(place for place in places if messages[place].role == "assistant")]
    stops = [*starts[1:], turn.stop]
    last = len(starts) - 1
    return [
        Unit(start, stop, stop - start, firm=number in (0, last))
        for number, (start, stop) in enumerate(zip(starts, stops, strict=True))
    ]


def left_out(
    messages: Sequence[Message], parts: Sequence[Unit], sizes: Sequence[int], fixed: int, limit: int
) -> frozenset[int]:
    """Places of the messages that go so that the rest has at most `limit` tokens, where that can be.

    parts: `units` without those that are to stay; sizes: tokens of each message; fixed: tokens of all that is
    in no part.
    """
    stays = [message.role in OPENING for message in messages]

    def tokens(start: int, stop: int, *, staying: bool = False) -> int:
        return sum(sizes[place] for place in range(start, stop) if stays[place] == staying)

    # Instructions in the middle count from when they are there: before, there was more room.
    used = kept = fixed
    gone: list[Unit] = []
    oldest = 0
    for number, one in enumerate(parts):
        now = one.start + one.asked
        come = tokens(one.start, now, staying=True)
        kept += come
        used += come + tokens(one.start, now)
        if used > limit:
            target = kept + (limit - kept) // 2
            # What came just before is needed most: it goes only if it has to.
            while oldest < number and used > (target if oldest < number - 1 else limit):
                if not parts[oldest].firm:
                    gone.append(parts[oldest])
                    used -= tokens(parts[oldest].start, parts[oldest].stop)
                oldest += 1
        come = tokens(now, one.stop, staying=True)
        kept += come
        used += come + tokens(now, one.stop)
    return frozenset(place for one in gone for place in range(one.start, one.stop) if not stays[place])
