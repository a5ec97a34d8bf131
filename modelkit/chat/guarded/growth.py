"""How much text or how many items an operation will make, charged to the budget before it runs.

Only operations whose result can be much larger than what they are given stand here; everything else is
accounted for by its result. Each row takes the arguments of the jinja filter or of Python's string method
that it is for, under the same names: a test compares them with the installed jinja2, and an argument that is
not known here is refused, never passed on uncounted.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sized
from types import BuiltinFunctionType, FunctionType, MethodType, MethodWrapperType
from typing import Any

from modelkit.chat.guarded.budget import INTEGER_BITS, ITEM_BYTES, NODE, Budget, Overrun
from runtime.quoting import quoted

MOST_WIDTH = 10_000
MOST_ITEMS = 1 << 18
MOST_PAIRS = 4096
MOST_DIGITS = 100
MOST_COMPARED = 1 << 29
WRAPPED_CHARS = 1 << 16
PRINTED = 10  # characters that a character may become when a list or an object is printed

_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, MethodWrapperType, type)
_PERCENT = re.compile(r"%(?:\([^()]*\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?")
_NUMBER = re.compile(r"\d+")
_LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


def text_bytes(characters: int, *kinds: str) -> int:
    """Bytes of a text of so many characters, made of the `kinds`."""
    return characters if all(kind.isascii() for kind in kinds) else 4 * characters


def printed_bytes(budget: Budget, value: object) -> int:
    """At most so many bytes is `str(value)`. Raises Overrun for what prints as an address in memory."""
    if isinstance(value, str):
        return text_bytes(len(value), value)
    weight = budget.weigh(value)
    waiting: list[object] = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list | tuple):
            waiting.extend(one)
        elif isinstance(one, _FUNCTIONS) or type(one).__repr__ is object.__repr__:
            raise Overrun("it prints a function")
    return PRINTED * weight


def check_width(width: object) -> int:
    if isinstance(width, int) and abs(width) > MOST_WIDTH:
        raise Overrun(f"it asks for a width of more than {MOST_WIDTH:,}")
    return max(0, width) if isinstance(width, int) else 0


def check_spec(spec: str) -> None:
    """A format specification: no width or precision beyond MOST_WIDTH."""
    for number in _NUMBER.findall(spec):
        check_width(int(number) if len(number) < 10 else MOST_WIDTH + 1)


def percent(budget: Budget, text: str, values: object) -> None:
    """`text % values`."""
    fields = _PERCENT.findall(text)
    for width, precision in fields:
        if "*" in (width, precision):
            raise Overrun("it takes the width of a field from an argument")
        check_spec(f"{width} {precision}")
    wide = 4 * MOST_WIDTH if any(width or precision for width, precision in fields) else 0
    # A name may stand in the text any number of times; the whole bounds each of its parts.
    budget.charge(text_bytes(len(text), text) + len(fields) * (wide + printed_bytes(budget, values)))


def check_arithmetic(budget: Budget, operator: str, left: Any, right: Any) -> None:
    """Before `left operator right`, for any binary operator of a template."""
    for one in (left, right):
        if isinstance(one, int):
            budget.weigh(one)
    if operator == "+" and isinstance(left, str | list | tuple):
        budget.charge_value(left)
        budget.charge_value(right)
    elif operator == "*":
        _check_times(budget, left, right)
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        if left.bit_length() * abs(right) > INTEGER_BITS:
            raise Overrun(f"it computes with numbers of more than {INTEGER_BITS} bits")
    elif operator == "%" and isinstance(left, str):
        percent(budget, left, right)


def _check_times(budget: Budget, left: Any, right: Any) -> None:
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, str | list | tuple) and isinstance(count, int):
            each = len(sequence) * 8 if not isinstance(sequence, str) else text_bytes(len(sequence), sequence)
            budget.charge(each * max(0, count))


def check_pairs(pairs: object) -> None:
    """What `dict` is made from: numbers chosen to collide would make a long list of pairs endless."""
    if not isinstance(pairs, Mapping) and isinstance(pairs, Sized) and len(pairs) > MOST_PAIRS:
        raise Overrun(f"it makes an object of more than {MOST_PAIRS:,} pairs")


def _padded(budget: Budget, value: object, width: object = 80, fillchar: str = " ") -> None:
    budget.charge(4 * check_width(width))


def _expanded(budget: Budget, value: str, tabsize: object = 8) -> None:
    budget.charge(text_bytes(len(value) + value.count("\t") * check_width(tabsize), value))


def _replaced(budget: Budget, value: object, old: object, new: object, count: int | None = -1) -> None:
    text, before, after = str(value), str(old), str(new)
    hits = text.count(before) if before else len(text) + 1
    if count is not None and count >= 0:
        hits = min(hits, count)
    budget.charge(text_bytes(len(text) + hits * len(after), text, after))


def _indented(
    budget: Budget, value: object, width: object = 4, first: object = False, blank: object = False
) -> None:
    text = str(value)
    lines = 1 + sum(text.count(end) for end in _LINE_ENDS)
    each = len(width) if isinstance(width, str) else check_width(width)
    budget.charge(text_bytes(len(text) + lines * (each + ITEM_BYTES), text, str(width)))


def _joined(budget: Budget, value: Any, d: object = "", attribute: object = None) -> None:
    _items(budget, value)
    parts = list(value)
    between = text_bytes(len(str(d)), str(d)) * len(parts)
    budget.charge(between + sum(printed_bytes(budget, part) for part in parts))


def _method_joined(budget: Budget, separator: str, parts: object) -> None:
    _joined(budget, parts, separator)


def _wrapped(
    budget: Budget, value: object, width: object = 79, break_long_words: object = True,
    wrapstring: str | None = None, break_on_hyphens: object = True,
) -> None:  # fmt: skip
    if len(str(value)) > WRAPPED_CHARS:
        raise Overrun(f"it wraps a text of more than {WRAPPED_CHARS:,} characters")
    budget.charge(4 * len(str(value)) * (1 + len(wrapstring or "")))


def _batched(budget: Budget, value: object, linecount: object, fill_with: object = None) -> None:
    if not isinstance(linecount, int) or not 0 < linecount <= MOST_WIDTH:
        raise Overrun(f"it cuts a list into rows; their length must be 1 to {MOST_WIDTH:,}")
    budget.charge(ITEM_BYTES * linecount)
    _items(budget, value)


def _sliced(budget: Budget, value: object, slices: object, fill_with: object = None) -> None:
    _batched(budget, value, slices)


def _items(budget: Budget, value: object, *_: object, **__: object) -> None:
    """A filter that goes through all items, of which a text has one for every character."""
    count = len(value) if isinstance(value, Sized) else 0
    if count > MOST_ITEMS:
        raise Overrun(f"it goes through more than {MOST_ITEMS:,} items in one filter")
    budget.charge(ITEM_BYTES * count)


def _split(budget: Budget, value: str, sep: str | None = None, maxsplit: int = -1) -> None:
    parts = value.count(sep) if sep else len(value) // 2
    budget.charge(ITEM_BYTES * (1 + (min(parts, maxsplit) if maxsplit >= 0 else parts)))


def _split_back(budget: Budget, value: str, sep: str | None = None, maxsplit: int = -1) -> None:
    _searched_back(budget, value, sep or "")
    _split(budget, value, sep, maxsplit)


def _split_lines(budget: Budget, value: str, keepends: object = False) -> None:
    budget.charge(ITEM_BYTES * (1 + sum(value.count(end) for end in _LINE_ENDS)))


def _searched_back(budget: Budget, value: str, sub: str, *_: object) -> None:
    """Python searches backwards in quadratic time."""
    if len(sub) * len(value) > MOST_COMPARED:
        raise Overrun("it searches a long text for another long text from the end")


def _stripped(budget: Budget, value: object, chars: str | None = None) -> None:
    """Every character of the text may be looked for in all of `chars`."""
    text = str(value)
    if len(chars or "") * len(text) > MOST_COMPARED:
        raise Overrun("it strips very many characters from a long text")
    budget.charge(printed_bytes(budget, value))


def _rounded(budget: Budget, value: object, precision: object = 0, method: object = "common") -> None:
    if isinstance(precision, int) and abs(precision) > MOST_DIGITS:
        raise Overrun(f"it rounds to more than {MOST_DIGITS} digits")


def _as_json(
    budget: Budget, value: object, ensure_ascii: object = False, indent: object = None,
    separators: object = None, sort_keys: object = False,
) -> None:  # fmt: skip
    step = len(indent) if isinstance(indent, str) else check_width(indent)
    between = sum(len(str(one)) for one in separators) if isinstance(separators, list | tuple) else 0
    weight = budget.weigh(value)
    budget.charge(weight + weight // NODE * (step * budget.height(value) + between))


def _remade(budget: Budget, value: object, *_: object, **__: object) -> None:
    """A text of about the same length; a list or an object is printed first."""
    budget.charge(printed_bytes(budget, value))


def _escaped(budget: Budget, value: object) -> None:
    budget.charge(6 * printed_bytes(budget, value))


def _worded(budget: Budget, value: object) -> None:
    """Goes through a list of the words."""
    budget.charge(ITEM_BYTES * printed_bytes(budget, value) // 2)


def _percent_filter(budget: Budget, value: object, *args: object, **named: object) -> None:
    percent(budget, str(value), named or args)


Predict = Callable[..., None]


def predict(
    rows: Mapping[str, Predict], name: str, budget: Budget, args: tuple[Any, ...], named: Mapping[str, Any]
) -> None:
    """Charge what `name` will make, if it has a row. Raises Overrun, and TypeError for unknown arguments."""
    row = rows.get(name)
    if row is None:
        return
    try:
        row(budget, *args, **named)
    except TypeError:
        try:
            inspect.signature(row).bind(budget, *args, **named)
        except TypeError as error:
            raise TypeError(f"{quoted(name)} is used in a way that is not known here: {error}") from None
        raise


_THROUGH_ITEMS = """
    dictsort groupby list map max min reject rejectattr reverse select selectattr sort sum unique
"""

FILTERS: dict[str, Predict] = {
    "batch": _batched,
    "center": _padded,
    "format": _percent_filter,
    "indent": _indented,
    "join": _joined,
    "replace": _replaced,
    "round": _rounded,
    "slice": _sliced,
    "tojson": _as_json,
    "trim": _stripped,
    "wordwrap": _wrapped,
    **dict.fromkeys(_THROUGH_ITEMS.split(), _items),
    **dict.fromkeys(("capitalize", "lower", "safe", "string", "truncate", "upper"), _remade),
    **dict.fromkeys(("e", "escape"), _escaped),
    **dict.fromkeys(("title", "wordcount"), _worded),
}

METHODS: dict[str, Predict] = {
    "expandtabs": _expanded,
    "join": _method_joined,
    "replace": _replaced,
    "rsplit": _split_back,
    "split": _split,
    "splitlines": _split_lines,
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _padded),
    **dict.fromkeys(("rfind", "rindex", "rpartition"), _searched_back),
    **dict.fromkeys(("lstrip", "rstrip", "strip"), _stripped),
    **dict.fromkeys(
        ("capitalize", "casefold", "lower", "partition", "removeprefix", "removesuffix"), _remade
    ),
    **dict.fromkeys(("swapcase", "title", "upper"), _remade),
}
