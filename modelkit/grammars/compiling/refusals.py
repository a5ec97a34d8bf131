"""What the library says of a form that it does not take, in words for who wrote the form; said again when the
form comes again, without another look at it.
"""

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

from modelkit.errors import RequestError
from modelkit.grammars.forms import Form
from modelkit.grammars.patterns.full_match import full_expression
from modelkit.grammars.patterns.syntax import UnsupportedPattern
from modelkit.grammars.schemas.traversal import subschemas
from runtime.quoting import sentence

_REGEX_ERROR = re.compile(r"regex parse error:\n(?P<place>(?: .*\n)+)error: (?P<why>.*)")
_MEANT = (
    (  # it names an option of the library's own
        *("oneOf constraints are not supported", ("oneOf",), "one value may fit several ways of oneOf"),
        "Write anyOf, or tell the ways apart: by a required property that is another const in each.",
    ),
    (  # it shows the patterns as they are written out
        *("are not disjoint", ("patternProperties",), "one name may fit several of patternProperties"),
        "Tell the patterns apart by how a name begins or ends, or write one for all.",
    ),
    (
        "min/maxProperties only supported",
        ("minProperties", "maxProperties"),
        "properties are counted where all are named, and few of them or nearly all may be left out",
        "Say `additionalProperties: false`, or which properties there must be, with anyOf and required.",
    ),
)
"""(the library's words, the keywords that are meant, what is wrong, what to do)."""
NO_TEXT = "NoExtensionBias"  # the library's word where nothing can be written
COSTLY = "lexer error: too many "
_WIDE = "Parser Error: Current row has"
_CROWDED = "parser error: Too many items"
_TIMES = re.compile(r"\{\s*(?:\d*\s*,\s*)?(\d{1,20})\d*\s*,?\s*\}")
_MOST_LINES, _LONGEST_LINE = 12, 200
CONDITIONS = "Name the cases that are meant with anyOf, required and const."
_WITHOUT = "Leave it out, or write what is meant with properties, items, enum, anyOf and required."
_SUPPORTED = "What is supported: https://github.com/guidance-ai/llguidance/blob/main/docs/json_schema.md"


class Refusals:
    """The last so many that were refused, and why. Safe to use from several threads.

    What is refused is refused for what it says: the library's limits count work, not time, so the same comes
    out whenever it is asked.
    """

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._known: OrderedDict[object, tuple[str, str | None]] = OrderedDict()

    def say_again(self, key: object) -> None:
        """Raises RequestError for what was refused before."""
        with self._lock:
            known = self._known.get(key)
            if known is None:
                return
            self._known.move_to_end(key)
        raise RequestError(known[0], hint=known[1])  # anew: one that is raised again grows its traceback

    @contextmanager
    def remembered(self, key: object) -> Generator[None]:
        """A RequestError that leaves this is a refusal of `key`."""
        try:
            yield
        except RequestError as error:
            with self._lock:
                self._known[key] = error.message, error.hint
                while len(self._known) > self._most:
                    self._known.popitem(last=False)
            raise


class Verdicts:
    """On the last so many schemas: why each is refused, None for one that is taken. Safe to use from several
    threads. look: finds one; taken: those of several that are taken, or some of these.
    """

    def __init__(
        self,
        look: Callable[[str], str | None],
        most: int,
        taken: Callable[[Sequence[str]], list[str]] = lambda _: [],
    ) -> None:
        self._look, self._taken, self._most, self._lock = look, taken, most, threading.Lock()
        self._known: OrderedDict[bytes, str | None] = OrderedDict()

    def of(self, schema: str) -> str | None:
        key = _short(schema)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        found = self._look(schema)
        self._keep(key, found)
        return found

    def look_at(self, schemas: Sequence[str]) -> None:
        """Before they are asked for one by one."""
        with self._lock:
            new = [one for one in schemas if _short(one) not in self._known]
        for one in self._taken(new) if len(new) > 1 else ():
            self._keep(_short(one), None)

    def _keep(self, key: bytes, found: str | None) -> None:
        with self._lock:
            self._known[key] = found
            while len(self._known) > self._most:
                self._known.popitem(last=False)


def _short(schema: str) -> bytes:
    """Of a text: those of all would be megabytes."""
    return blake2b(schema.encode(), digest_size=32).digest()


def refused(form: Form, why: str, hint: str | None = None) -> RequestError:
    """hint: what to do, where that is known."""
    if COSTLY in why or _CROWDED in why:  # it tells how, in its own terms
        why = "what it repeats costs more to look through than is spent on a token; fewer times are taken"
        if place := _most_repeated(form):
            why += f" ({place})"
    what = {"schema": "is not a usable JSON schema", "regex": "is not a usable regular expression"}
    if why.startswith(NO_TEXT):
        why = "no text fits it, or its rules never come to an end"
    if _WIDE in why:
        why = "too many choices are possible at one place to be tried for each token; write it with fewer"
    shown = one_line(why) if form.kind == "schema" else _pointed(why)
    said = f"{form.option} {what.get(form.kind, 'is not a usable grammar')}: {shown}"
    if form.kind != "schema":
        return RequestError(said)
    for words, keys, meant, do in _MEANT:
        if words in why:
            places = [place for place, _ in _places(keys, form.text)]
            where = f" (at {places[0]})" if len(places) == 1 else ""
            return RequestError(f"{said.partition(':')[0]}: {meant}{where}", hint=do)
    # It tells of a pattern as it has changed it: then it is the first that is not understood.
    patterns = [*_places({"pattern"}, form.text)] if "regex" in why else []
    for place, pattern in [*(one for one in patterns if str(one[1]) in why), *patterns]:
        if isinstance(pattern, str) and (wrong := _not_understood(pattern)):
            return RequestError(f"{said.partition(':')[0]}: {wrong} (at {place})")
    place = _place_of(why, form.text)
    if place is None:
        return RequestError(said, hint=hint or _SUPPORTED)
    keyword = place.rpartition("/")[2]
    return RequestError(f"{said.partition(':')[0]}: no grammar holds `{keyword}` (at {place})", hint=_WITHOUT)


def _most_repeated(form: Form) -> str | None:
    """Where the largest number of times stands."""
    if form.kind == "schema":
        counts = [
            (int(found[1]), at)
            for at, pattern in _places({"pattern"}, form.text)
            if isinstance(pattern, str)
            for found in _TIMES.finditer(pattern)
        ]
        return f"at {max(counts, key=lambda count: count[0])[1]}" if counts else None
    found = max(_TIMES.finditer(form.text), key=lambda one: int(one[1]), default=None)
    if found is None:
        return None
    line, before = form.text.count("\n", 0, found.start()) + 1, form.text.rfind("\n", 0, found.start())
    return f"{found[0][:40]} at line {line}, column {found.start() - before}"


def _not_understood(pattern: str) -> str | None:
    try:
        full_expression(pattern)
    except UnsupportedPattern as error:
        return str(error)
    return None


def one_line(text: str) -> str:
    return sentence(text.replace("<non-verbose/>", ""))


def first_line(text: str) -> str:
    """Without the grammar itself, which nobody has written."""
    return one_line(text.strip().partition("\n")[0])


def _pointed(text: str) -> str:
    """The library's message, in lines where a caret under one points at a place. For a regular expression:
    what its own parser says.
    """
    own = _REGEX_ERROR.search(text)
    if own is not None:
        place = own["place"].rstrip()
        return f"{own['why']}\n{place}" if len(place) <= 2 * _LONGEST_LINE else own["why"]
    lines = text.replace("<non-verbose/>", "").strip("\n").splitlines()
    points = any(line.lstrip(" |").startswith("^") for line in lines)
    if not points or len(lines) > _MOST_LINES or max(map(len, lines)) > _LONGEST_LINE:
        return one_line(text)
    return "\n".join(line.rstrip() for line in lines)


def _place_of(why: str, schema: str) -> str | None:
    """A JSON pointer to the first keyword that is not supported, if that is what is wrong."""
    _, found, keys = why.partition("Unimplemented keys: ")
    if not found:
        return None
    return next((place for place, _ in _places(set[str](json.loads(keys)), schema)), None)


def _places(wanted: Collection[str], schema: str) -> Iterator[tuple[str, Any]]:
    """JSON pointers to keywords of the schema, and what they say."""
    root = json.loads(schema)
    for at, part in subschemas(root) if isinstance(root, dict) else ():
        yield from ((f"{at}/{key}", part[key]) for key in part if key in wanted)
