"""Keep Python's collector of cycles from running while much is made that stays.

It looks through all objects again and again as their number grows. While modules are imported and a tokenizer
and a network are built, all that it finds is what will be used: a third of the time to a first token.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager

_OF_PYTHON = 1000
"""Python 3.12 freezes some 400 objects as it starts; whoever else does it, thousands."""
_alone = True
"""Has nobody else been seen to freeze objects? To count them takes longer the more there are."""


@contextmanager
def uncollected() -> Generator[None]:
    """Where several threads are in such a block, the first to leave ends it for all: they only lose time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            _as_old()
            gc.enable()


def _as_old() -> None:
    """Have what is there now looked through when old things are.

    All of it is young, and the next object that is made, of whatever kind, would have it looked through: a
    tenth of the time to a first token. Freezing and thawing hands lists of objects on, and looks at none.
    What others have frozen would be thawed with it, so with them all stays as it is.
    """
    global _alone
    if not _alone or gc.get_count()[0] <= gc.get_threshold()[0]:
        return
    _alone = gc.get_freeze_count() < _OF_PYTHON
    if _alone:
        gc.freeze()
        gc.unfreeze()
