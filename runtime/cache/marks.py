"""Where a prompt is paged while it is read, for models that cannot be resumed just anywhere.

Conversations branch at few places: behind the system part, before and behind the last user message, and just
before the end, when an answer is wanted again. Each page costs one more step and, for a fold, a whole state,
so of the other places only some are taken.
"""

from collections.abc import Iterable

# A mark this close to the end makes another one at the end superfluous.
NEAR_TOKENS = 16


def page_marks(asked: Iterable[int], *, start: int, stop: int, branch: int, spacing: int) -> tuple[int, ...]:
    """Positions in (start, stop) where a page is taken, ascending, of a prompt that is read from `start` on.

    asked: where the prompt's author says that conversations may branch; the first and the last two always
    count, the others at least `spacing` tokens apart. branch: where this prompt left what is known.
    """
    inside = sorted({mark for mark in asked if start < mark < stop})
    firm = {*inside[:1], *inside[-2:], *({branch} if start < branch < stop else ())}
    if stop - 1 > start and stop - max(firm, default=start) > NEAR_TOKENS:
        firm.add(stop - 1)
    marks: list[int] = []
    for mark in sorted({*inside, *firm}):
        if mark in firm or mark - max(marks, default=start) >= spacing:
            marks.append(mark)
    return tuple(marks)
