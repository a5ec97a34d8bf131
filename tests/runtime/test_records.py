"""Records are the standard library's data classes, but for when they are made."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from runtime import records


@records.dataclass(frozen=True, slots=True)
class Kept:
    """One that pickle finds by its name."""

    a: int
    b: tuple[int, ...] = ()


def make(decorator: Callable[..., Any], **given: Any) -> Any:
    @decorator(slots=True, **given)
    class Base:
        """One."""

        a: int
        b: str = "b"
        c: list[int] = dataclasses.field(default_factory=list, compare=False)
        d: int = dataclasses.field(default=4, repr=False)
        e: int = dataclasses.field(default=5, kw_only=True, hash=False)

        @property
        def twice(self) -> int:
            return 2 * self.a

    return Base


def make_other(decorator: Callable[..., Any], **given: Any) -> Any:
    @decorator(slots=True, **given)
    class Sub(make(decorator, **given)):
        """Two."""

        f: int = dataclasses.field(init=False)
        g: int = dataclasses.field(init=False, default=7)
        h: dict[str, int] = dataclasses.field(init=False, default_factory=dict)

        def __post_init__(self) -> None:
            object.__setattr__(self, "f", self.a + 1)

    return Sub


KINDS: list[dict[str, Any]] = [
    {"frozen": True},
    {},
    {"frozen": True, "eq": False},
    {"frozen": True, "order": True},
    {"frozen": True, "repr": False},
    {"eq": False},
]
BOTH = [make, make_other]


def said(do: Callable[[], object]) -> str:
    """What comes of it, as a text that names no address and no message of Python's own."""
    try:
        return f"{do()!r}"
    except (TypeError, AttributeError) as error:
        return (
            f"{type(error).__name__} {error}" if isinstance(error, AttributeError) else type(error).__name__
        )


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("made", BOTH)
def test_a_record_is_what_the_standard_library_makes(made: Callable[..., Any], kind: dict[str, Any]) -> None:
    ours, theirs = made(records.dataclass, **kind), made(dataclasses.dataclass, **kind)
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__slots__ == theirs.__slots__
    assert ours.__doc__ == theirs.__doc__
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    assert [one.name for one in dataclasses.fields(ours)] == [one.name for one in dataclasses.fields(theirs)]
    answers = []
    for cls in (ours, theirs):
        one, same, other = cls(1, c=[3], e=6), cls(1, e=6), cls(2, "x")
        does: list[Callable[[], object]] = [
            lambda one=one: (one.a, one.b, one.c, one.d, one.e, one.twice),
            lambda one=one: dataclasses.asdict(one),
            lambda one=one: dataclasses.replace(one, a=9).a,
            lambda one=one, same=same: (one == same, hash(one) == hash(same)),
            lambda one=one, other=other: (one == other, one != other, one == 1),
            lambda one=one, other=other: (one < other, one <= other, one > other, one >= other),
            lambda one=one: setattr(one, "a", 3) or one.a,
            lambda one=one: delattr(one, "b"),
            lambda cls=cls: cls(),
            lambda cls=cls: cls(1, 2, 3, 4, 5),
            lambda cls=cls: cls(1, wrong=2),
            lambda one=one: copy.copy(one).a,
            lambda one=one: copy.deepcopy(one).c,
        ]
        shown = repr(one) if kind.get("repr", True) else ""
        answers.append([shown, *map(said, does)])
    assert answers[0] == answers[1]


def test_lists_are_not_shared() -> None:
    one, other = (make(records.dataclass)(1) for _ in range(2))
    one.c.append(1)
    assert other.c == []


def test_a_body_has_the_last_word() -> None:
    @records.dataclass(frozen=True, slots=True)
    class Own:
        """With methods of its own."""

        a: int

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "own"

    assert Own(1) == 2
    assert repr(Own(1)) == "own"
    assert hash(Own(1)) == hash(Own(1))


def test_a_record_is_pickled_and_matched() -> None:
    match pickle.loads(pickle.dumps(Kept(1, (2, 3)))):
        case Kept(a, b):
            assert (a, b) == (1, (2, 3))
        case other:
            pytest.fail(f"{other}")


def test_what_makes_a_value_is_compiled_when_it_is_wanted() -> None:
    cls = make(records.dataclass, frozen=True)
    assert not inspect.isfunction(cls.__dict__["__init__"])
    cls(1)
    assert inspect.isfunction(cls.__dict__["__init__"])


def test_nothing_is_added_to_a_frozen_record() -> None:
    one = make(records.dataclass, frozen=True)(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="'z'"):
        one.z = 3  # the standard library's own message is lost there: with slots, it asks the wrong class


def test_fields_of_one_kind_share_code_and_no_names() -> None:
    @records.dataclass(frozen=True, slots=True)
    class One:
        x: int
        y: int = 2

    @records.dataclass(frozen=True, slots=True)
    class Two:
        u: int
        v: int = 3

    assert (One(1), Two(1), Two(v=5, u=4)) == (One(1, 2), Two(1, 3), Two(4, 5))
    with pytest.raises(TypeError, match=r"Two\.__init__\(\) missing 1 required positional argument: 'u'"):
        Two(v=1)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="unexpected keyword argument 'x'"):
        Two(x=1)  # pyright: ignore[reportCallIssue]


def test_a_field_without_a_default_stands_before_those_with_one() -> None:
    @records.dataclass(slots=True)
    class Odd:
        x: int = 1
        y: int  # pyright: ignore[reportGeneralTypeIssues]

    with pytest.raises(TypeError, match="the field 'y' has no default"):
        Odd(1, 2)
