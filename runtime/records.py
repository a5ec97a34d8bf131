"""`dataclass`: the standard library's, but what it makes is made when it is asked for.

The standard decorator writes and compiles six functions for each class: 0.4 ms. A model to run brings nearly
three hundred classes, of which few are compared or printed and many are never made: that was a third of the
time to a first token. Here the standard library reads the fields, so that `fields`, `replace`, `asdict` and
`match` know these classes; what compares, hashes, shows and guards a value needs no code of its class's own;
and `__init__` is compiled when it is first looked up: for the first value, or for whoever asks what it takes.

Not covered: InitVar, and bases that are data classes of the standard decorator.
"""

import dataclasses
import operator
from collections.abc import Callable
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass

__all__ = ["dataclass"]

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
    """`def __init__(self, a, b=default_b): set_a(self, a); set_b(self, b)`, annotated as its class is."""
    names: dict[str, Any] = {}
    places: list[str] = []
    by_name: list[str] = []
    body: list[str] = []
    for one in dataclasses.fields(cls):
        value, default = one.name, ""
        if one.default is not dataclasses.MISSING:
            default = f"default_{one.name}"
            names[default] = one.default
        elif one.default_factory is not dataclasses.MISSING:
            default, make = "FACTORY", f"make_{one.name}"
            names |= {default: _FACTORY, make: one.default_factory}
            value = f"{make}() if {value} is {default} else {value}" if one.init else f"{make}()"
        elif not one.init:
            continue  # __post_init__ gives it
        if one.init:
            (by_name if one.kw_only else places).append(f"{one.name}={default}" if default else one.name)
        elif value == one.name:
            value = default
        names[f"set_{one.name}"] = getattr(cls, one.name).__set__
        body.append(f"set_{one.name}(self, {value})" if frozen else f"self.{one.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    taken = ", ".join(["self", *places, *(["*", *by_name] if by_name else [])])
    source = f"def __init__({taken}):\n  " + "\n  ".join(body or ["pass"])
    exec(source, names)  # noqa: S102 -- made of the names of fields, as in the standard library
    init = names["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {one.name: one.type for one in dataclasses.fields(cls) if one.init}
    init.__annotations__["return"] = None
    return init


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
