"""What a parsed template is made of. Every part knows where it stands, for errors."""

from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """In the template's text, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Field:
    """`.A.B`: of the dot; () is the dot itself."""

    names: tuple[str, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Variable:
    """`$x.A`; "$" is the data that the template was given."""

    name: str
    names: tuple[str, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, a number, true, false or nil."""

    value: str | int | float | bool | None
    place: Place


@dataclass(frozen=True, slots=True)
class Function:
    """The name of a function: first in its command."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Group:
    """`(pipe).A`"""

    pipe: "Pipe"
    names: tuple[str, ...]
    place: Place


Operand = Field | Variable | Literal | Function | Group


@dataclass(frozen=True, slots=True)
class Pipe:
    """`$x := a b | c d`: commands, each the last argument of the next."""

    commands: tuple[tuple[Operand, ...], ...]
    place: Place
    variables: tuple[str, ...] = ()
    """Those that it sets."""
    assigns: bool = False
    """It sets them with `=`, so they were declared before."""


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Action:
    """`{{ pipe }}`: prints, unless it sets a variable."""

    pipe: Pipe


@dataclass(frozen=True, slots=True)
class Branch:
    """`if`, `with` or `range`, to its end."""

    keyword: str
    pipe: Pipe
    body: "Nodes"
    other: "Nodes | None" = None
    """Behind `else`."""


@dataclass(frozen=True, slots=True)
class Leave:
    """`break` or `continue`."""

    keyword: str


Node = Text | Action | Branch | Leave
Nodes = tuple[Node, ...]
