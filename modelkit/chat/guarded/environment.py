"""The jinja2 environment whose every operation is counted.

What may be reached is listed in `reachable`; everything else is out of reach. Filters and tests charge the
Budget for what they make, generators become lists, and `call`, `call_binop`, `concat` and `finalize` are
the hooks through which jinja2 runs the rest. The Budget is the thread's, so each thread may render at once.
"""

import re
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from io import StringIO
from types import BuiltinMethodType, CodeType, MethodType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import loopcontrols
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Cycler, Joiner, Namespace

from modelkit.chat.go.functions import GLOBALS as GO
from modelkit.chat.guarded import growth, reachable
from modelkit.chat.guarded.budget import Budget, Overrun
from modelkit.chat.guarded.instrument import (
    WEIGHED,
    Bounds,
    Generation,
    Instrument,
    Undeclared,
    checked,
    own_names,
)
from modelkit.chat.guarded.reachable import PlainNamespace, make_dict, make_range, raise_exception, to_json

# jinja2 hands a template's own variables on in these; its `Context.call` takes them out again.
_HIDDEN = ("_loop_vars", "_block_vars")

OUTPUT_CHARS = 8_000_000

_QUIET = threading.Lock()  # the filters of warnings are those of the whole process

_DATE_FORMAT = re.compile(r"(?:[^%]|%[-_0^#]?[a-zA-Z%])*")


class _Rendering(threading.local):
    """What belongs to the rendering (or compilation) of one thread."""

    def __init__(self, seconds: float) -> None:
        self.budget = Budget(seconds)
        self.now: datetime | None = None


class GuardedEnvironment(ImmutableSandboxedEnvironment):
    """The guard. Compiling and each rendering may take `seconds` of processor time."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, seconds: float) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            cache_size=0,
            extensions=[Bounds, Generation, loopcontrols],
        )
        self._seconds = seconds
        self._rendering = _Rendering(seconds)
        self._undeclared: set[str] = set()
        self.turn = self._turn  # one object, so that `call` knows it again
        self.finalize = self._printed
        filters = {**self.filters, "tojson": to_json, "sum": self._sum}
        self.filters = {
            name: self._filter(name, function)
            for name, function in filters.items()
            if name in reachable.FILTERS
        }
        self.filters[WEIGHED] = self._weighed
        self.tests = {
            name: self._test(function) for name, function in self.tests.items() if name in reachable.TESTS
        }
        self.globals = {
            "range": make_range,
            "dict": make_dict,
            "namespace": PlainNamespace,
            "cycler": Cycler,
            "joiner": Joiner,
            "raise_exception": raise_exception,
            "strftime_now": self._strftime_now,
            **GO,  # for templates that were Go's
        }

    @property
    def budget(self) -> Budget:
        return self._rendering.budget

    @contextmanager
    def rendering(self, now: datetime | None) -> Generator[None]:
        """A new Budget for what this thread does inside. `now` stands in for the clock."""
        self._rendering.budget, self._rendering.now = Budget(self._seconds), now
        try:
            yield
        finally:
            self._rendering.budget = Budget(self._seconds)  # the old one holds every value that was weighed

    def build(self, source: str) -> tuple[jinja2.Template, frozenset[str]]:
        """The template, and the names that it expects from outside."""
        tree = self.parse(source)
        own = own_names(checked(tree))
        tree = Instrument().visit(tree)
        tree.set_environment(self)
        template = self.from_string(tree)
        return template, frozenset(self._undeclared - self.globals.keys() - own)

    def _generate(
        self, source: nodes.Template, name: str | None, filename: str | None, defer_init: bool = False
    ) -> str:
        """jinja2's hook for another way to write the template's Python."""
        stream = StringIO()
        generator = Undeclared(self, name, filename, stream, defer_init, self.optimized)
        generator.visit(source)
        self._undeclared = generator.names
        return stream.getvalue()

    def _compile(self, source: str, filename: str) -> CodeType:
        """What Python thinks of the code that jinja2 makes (`5[0]`) is no news to a user."""
        with _QUIET, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return super()._compile(source, filename)

    # What a template may reach

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if not super().is_safe_attribute(obj, attr, value):
            return False
        for kind, names in reachable.ATTRIBUTES:
            if isinstance(obj, kind):
                return attr in names
        return isinstance(obj, LoopContext | Namespace | Macro | Cycler)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(argument, slice):
            self.budget.tick()
            result = super().getitem(obj, argument)
            self.budget.charge_value(result)
            return result
        self.budget.weigh_all((argument,))
        return super().getitem(obj, argument)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`format` and `format_map` of a text, with every field bounded."""
        if not isinstance(value, MethodType | BuiltinMethodType):
            return None
        text, name = value.__self__, value.__name__
        if not isinstance(text, str) or name not in ("format", "format_map"):
            return None
        formatter = _Formatter(self)

        def bounded(*args: Any, **named: Any) -> str:
            if name == "format_map":
                return formatter.vformat(str(text), (), args[0])
            return formatter.vformat(str(text), args, named)

        return bounded

    # What it does, counted

    def call(self, context: Context, obj: Any, /, *args: Any, **named: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # jinja2 spells positional-only with underscores
        if obj is self.turn:
            return self._turn(*args)
        budget = self.budget
        budget.tick()
        given = {key: value for key, value in named.items() if key not in _HIDDEN}
        budget.weigh_all(args)
        budget.weigh_all(given.values())
        if isinstance(obj, BuiltinMethodType | MethodType) and isinstance(obj.__self__, str):
            growth.predict(growth.METHODS, obj.__name__, budget, (obj.__self__, *args), given)
        budget.enter()
        result = super().call(context, obj, *args, **named)
        budget.leave()
        if getattr(obj, "__name__", None) != "get":  # what `get` returns was there before
            budget.charge_value(result)
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.budget.tick()
        growth.check_arithmetic(self.budget, operator, left, right)
        return super().call_binop(context, operator, left, right)

    def concat(self, parts: Iterable[str]) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # a method where jinja2 keeps a function
        """Joins what a template, a macro or a `set` block wrote."""
        kept: list[str] = []
        total = 0
        for part in parts:
            if part:
                total += len(part)
                if total > OUTPUT_CHARS:
                    raise Overrun(f"it writes more than {OUTPUT_CHARS:,} characters")
                kept.append(part)
        text_bytes = total if all(part.isascii() for part in kept) else 4 * total
        self.budget.charge(text_bytes)
        return "".join(kept)

    def joined(self, *parts: Any) -> str:
        """The operator `~`."""
        self.budget.charge(sum(growth.printed_bytes(self.budget, part) for part in parts))
        return "".join(map(str, parts))

    def _turn(self, cost_bytes: int) -> bool:
        """One turn of a loop; `cost_bytes` is what its body may leave behind."""
        self.budget.tick()
        self.budget.charge(cost_bytes)
        return True

    def _printed(self, value: Any) -> Any:
        """Every `{{ value }}` passes here before it becomes text."""
        if type(value) is not str:
            self.budget.charge(growth.printed_bytes(self.budget, value))
        return value

    def _weighed(self, value: Any) -> Any:
        """An operand about to be compared or looked through."""
        self.budget.tick()
        self.budget.weigh_all((value,))
        return value

    def _filter(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        first = 1 if hasattr(function, "jinja_pass_arg") else 0

        @wraps(function)
        def counted(*args: Any, **named: Any) -> Any:
            budget = self.budget
            budget.tick()
            values = args[first:]
            budget.weigh_all(values)
            budget.weigh_all(named.values())
            growth.predict(growth.FILTERS, name, budget, values, named)
            result = function(*args, **named)
            if isinstance(result, Iterator):
                result = self._listed(result)
            if not values or result is not values[0]:
                budget.charge_value(result)
            return result

        return counted

    def _test(self, function: Callable[..., Any]) -> Callable[..., Any]:
        first = 1 if hasattr(function, "jinja_pass_arg") else 0

        @wraps(function)
        def counted(*args: Any, **named: Any) -> Any:
            self.budget.tick()
            self.budget.weigh_all(args[first:])
            self.budget.weigh_all(named.values())
            return function(*args, **named)

        return counted

    def _listed(self, items: Iterator[Any]) -> list[Any]:
        """What jinja2 gives as a generator, as a list: nothing then runs uncounted later."""
        made: list[Any] = []
        for item in items:
            self._turn(growth.ITEM_BYTES)
            made.append(item)
        return made

    def _sum(self, values: Iterable[Any], attribute: Any = None, start: Any = 0) -> Any:
        """jinja2's `sum`, by the guarded `+`: Python's own adds up lists in quadratic time, uncounted."""
        total = start
        for value in values:
            item = value if attribute is None else self.getitem(value, attribute)
            self.budget.tick()
            growth.check_arithmetic(self.budget, "+", total, item)
            total = total + item
        return total

    def _strftime_now(self, format: str) -> str:  # noqa: A002  # the name templates may use
        if not isinstance(format, str) or len(format) > 256 or not _DATE_FORMAT.fullmatch(format):
            raise Overrun("its date format is not one of at most 256 characters without widths")
        return (self._rendering.now or datetime.now()).strftime(format)


class _Formatter(SandboxedFormatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        growth.check_spec(format_spec)
        budget = self._env.budget  # pyright: ignore[reportAttributeAccessIssue]  # always made by our environment
        budget.tick()
        budget.charge(growth.printed_bytes(budget, value) + 4 * growth.MOST_WIDTH * bool(format_spec))
        return super().format_field(value, format_spec)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        budget = self._env.budget  # pyright: ignore[reportAttributeAccessIssue]
        budget.charge(growth.PRINTED * budget.weigh(value))
        return super().convert_field(value, conversion)
