"""Calls written as in Python, `f(a="x", n=1)`, their arguments written as a JSON object."""

import json

from modelkit.output.reading import values
from modelkit.output.reading.feed import Broken, Cut, Feed, NoCall, Waiting
from modelkit.output.reading.schemas import Schema
from modelkit.output.reading.values import Notation, Write

_LONGEST_NAME = 256
PYTHON = Notation(python=True)


def name(feed: Feed) -> Waiting[str]:
    """A call's name, up to its `(`, which is left. Raises NoCall."""
    count = 0
    while (char := (yield from feed.char(count))) and (char.isalnum() or char in "_.-:/"):
        count += 1
        if count > _LONGEST_NAME:
            raise NoCall
    if char != "(" or not count:
        raise NoCall
    return feed.take(count)


def arguments(feed: Feed, write: Write, schema: Schema) -> Waiting[None]:
    """From `(` to `)`. One without a name gets that of the schema's at its place."""
    feed.take(1)
    write("{")
    between, unnamed = "", iter(schema.names())
    while True:
        char = yield from feed.skip_blanks()
        if char == ")":
            break
        if not char:
            raise Cut
        key = yield from _key(feed)
        if key is None:
            key = next(unnamed, None)
        if key is None:
            raise Broken
        write(f"{between}{json.dumps(key, ensure_ascii=False)}: ")
        between = ", "
        yield from values.value(feed, write, PYTHON)
        if (char := (yield from feed.skip_blanks())) == ",":
            feed.take(1)
        elif char != ")":
            raise Broken if char else Cut
    feed.take(1)
    write("}")


def _key(feed: Feed) -> Waiting[str | None]:
    """The name in front of `=`, taken with it; None where a value stands without one."""
    count = 0
    while (char := (yield from feed.char(count))) and (char.isalnum() or char in "_-."):
        count += 1
        if count > _LONGEST_NAME:
            raise Broken
    behind = yield from feed.blanks(count)
    if not count or (yield from feed.char(behind)) != "=":
        return None
    key = feed.take(behind + 1)[:count]
    return key
