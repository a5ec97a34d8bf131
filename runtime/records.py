"""`dataclass`: the standard library's, but what it makes is made when it is asked for.

The standard decorator writes and compiles six functions for each class: 0.4 ms. A model to run brings nearly
three hundred classes, of which few are compared or printed and many are never made: that was a third of the
time to a first token. Here the standard library reads the fields, so that `fields`, `replace`, `asdict` and
`match` know these classes; what compares, hashes, shows and guards a value needs no code of its class's own;
and `__init__` is made when it is first looked up, for the first value or for whoever asks what it takes, of
code that all classes with fields of the same kinds share.

Not covered: InitVar, and bases that are data classes of the standard decorator.
"""

import dataclasses
import operator
from collections.abc import Callable
from functools import cache
from reprlib import recursive_repr
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from dataclasses import dataclass

__all__ = ["dataclass"]

_Kind = Literal["given", "given or made", "made", "default"]
"""Where a field's value is from: an argument, its factory, its default."""
_ORDER = {"__lt__": operator.lt, "__le__": operator.le, "__gt__": operator.gt, "__ge__": operator.ge}


def _decorator(
    *,
    slots: bool,
    frozen: bool = False,
    eq: bool = True,
    order: bool = False,
    repr: bool = True,  # noqa: A002 -- named as in the standard library
    kw_only: bool = False,
) -> Callable[[type], type]:
    """Arguments and their meaning are those of `dataclasses.dataclass`; there are always slots."""
    if not slots:
        raise TypeError("a record has slots: write slots=True")

    def decorate(cls: type) -> type:
        cls.__doc__ = cls.__doc__ or cls.__name__  # else the standard library works out a signature
        own = dict(cls.__dict__)
        made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
        methods: dict[str, Any] = {"__init__": _Init(made, frozen=frozen)}
        if frozen:
            methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
        if repr:
            methods["__repr__"] = _shown
        if eq:
            methods |= _comparing(made, own, frozen=frozen, order=order)
        for name, method in methods.items():
            if own.get(name) is None:  # None: __hash__ of a class that says what equals
                setattr(made, name, method)
        return made

    return decorate


if not TYPE_CHECKING:
    dataclass = _decorator  # checkers know the standard one by heart


class _Factory:
    """What signatures show where a call makes the default."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class _Init:
    """Stands for an `__init__` until it is looked up: then it is compiled and takes this one's place."""

    __slots__ = ("_cls", "_frozen")

    def __init__(self, cls: Any, *, frozen: bool) -> None:
        self._cls, self._frozen = cls, frozen

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        init = _compile(self._cls, frozen=self._frozen)
        self._cls.__init__ = init
        return init.__get__(instance, owner)


def _compile(cls: Any, *, frozen: bool) -> Any:
    """`def __init__(self, a, b=default): set_a(self, a); set_b(self, b)`, annotated as its class is.

    Classes whose fields are of the same kinds share what was compiled, and differ in the names in it.
    """
    members = dataclasses.fields(cls)
    given = [one for one in members if one.init]
    places, by_name = [one for one in given if not one.kw_only], [one for one in given if one.kw_only]
    ordered = [*places, *by_name, *(one for one in members if not one.init and _kind(one) != "given")]
    code = _shape(tuple(map(_kind, ordered)), frozen=frozen, after=hasattr(cls, "__post_init__"))
    attributes = {f"name{at}": one.name for at, one in enumerate(ordered)}
    code = code.replace(
        co_argcount=1 + len(places),
        co_kwonlyargcount=len(by_name),
        co_varnames=("self", *(one.name for one in (*places, *by_name))),
        co_names=tuple(attributes.get(name, name) for name in code.co_names),
    )
    names: dict[str, Any] = {"FACTORY": _FACTORY}
    for at, one in enumerate(ordered):
        names[f"set{at}"] = getattr(cls, one.name).__set__
        names[f"make{at}"], names[f"value{at}"] = one.default_factory, one.default
    defaults = {one.name: _default(one) for one in given if _default(one) is not dataclasses.MISSING}
    ends = [one.name for one in places if one.name in defaults]
    late = [one.name for one in places[len(places) - len(ends) :] if one.name not in defaults]
    if late:
        raise TypeError(
            f"{cls.__qualname__}: the field {late[0]!r} has no default and stands behind one that has"
        )
    init = FunctionType(code, names, "__init__", tuple(defaults[name] for name in ends))
    init.__kwdefaults__ = {one.name: defaults[one.name] for one in by_name if one.name in defaults}
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {one.name: one.type for one in given}
    init.__annotations__["return"] = None
    return init


def _default(one: "dataclasses.Field[Any]") -> Any:
    """What signatures show; MISSING for none."""
    return one.default if one.default_factory is dataclasses.MISSING else _FACTORY


def _kind(one: "dataclasses.Field[Any]") -> _Kind:
    if one.default_factory is not dataclasses.MISSING:
        return "given or made" if one.init else "made"
    return "given" if one.init or one.default is dataclasses.MISSING else "default"


_VALUES: dict[_Kind, str] = {
    "given": "given{0}",
    "given or made": "make{0}() if given{0} is FACTORY else given{0}",
    "made": "make{0}()",
    "default": "value{0}",
}


@cache
def _shape(kinds: tuple[_Kind, ...], *, frozen: bool, after: bool) -> CodeType:
    """The code of an `__init__`, with numbers for the fields' names. after: is there a `__post_init__`?"""
    taken = [f"given{at}" for at, kind in enumerate(kinds) if kind.startswith("given")]
    sets = "set{0}(self, {1})" if frozen else "self.name{0} = {1}"
    body = [sets.format(at, _VALUES[kind].format(at)) for at, kind in enumerate(kinds)]
    body += ["self.__post_init__()"] * after
    source = f"def __init__({', '.join(['self', *taken])}):\n  " + "\n  ".join(body or ["pass"])
    made: dict[str, Any] = {}
    exec(source, made)  # noqa: S102 -- made of numbers
    return made["__init__"].__code__


def _comparing(made: Any, own: dict[str, Any], *, frozen: bool, order: bool) -> dict[str, Any]:
    """`__eq__` and what goes with it. own: what the class's body says."""
    members = dataclasses.fields(made)
    key = _key([one.name for one in members if one.compare])

    def equal(self: Any, other: Any) -> Any:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    methods: dict[str, Any] = {"__eq__": equal}
    if frozen:
        hashed = _key([one.name for one in members if (one.compare if one.hash is None else one.hash)])
        methods["__hash__"] = lambda self: hash(hashed(self))
    elif "__hash__" not in own:
        made.__hash__ = None
    if order:
        methods |= {name: _ordering(key, compare) for name, compare in _ORDER.items()}
    return methods


def _ordering(key: Callable[[Any], Any], compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def ordered(self: Any, other: Any) -> Any:
        return compare(key(self), key(other)) if other.__class__ is self.__class__ else NotImplemented

    return ordered


def _key(names: list[str]) -> Callable[[Any], Any]:
    """What values are compared by: a tuple of their fields, or the only one."""
    return operator.attrgetter(*names) if names else lambda _: ()


@recursive_repr()
def _shown(self: Any) -> str:
    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)
