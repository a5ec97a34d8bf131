"""Keep Python's collector of cycles from running while much is made that stays.

It looks through all objects again and again as their number grows. While modules are imported and a tokenizer
and a network are built, all that it finds is what will be used: a third of the time to a first token.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Generator[None]:
    """Where several threads are in such a block, the first to leave ends it for all: they only lose time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
