"""The Modelfile room: text -> directives -> recipe, and back to text.

    text --syntax.parse--> directives --Recipe.of--> Recipe     (then `pack` opens files)
    text <-syntax.format-- directives

`directives` and `parameter_table` are the two tables that everything else follows. `parameters` reads and
checks values, `keywords` has them as types for Python, `quantizing` reads QUANTIZE, `reference` what FROM
points at, and `go` tells which language a TEMPLATE is in.

This room relies on the standard library, `modelkit.arguments`, `modelkit.words`, the sampler's table of
ranges and that of formats, opens no file but the Modelfile itself, and raises ModelfileError, ParameterError
for a parameter that did not come from a file, PlanError for words of QUANTIZE that did not, and RequestError
for an argument of a wrong type.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import field
from pathlib import Path

from modelkit import arguments
from modelkit.errors import ModelfileError
from modelkit.modelfile import syntax
from modelkit.modelfile.directives import DIRECTIVES, ROLES
from modelkit.modelfile.parameter_table import PARAMETERS, REFUSED, Parameter, ParameterValue, Resolved
from modelkit.modelfile.parameters import Parameters, check_name, check_parameter, parse_parameter
from modelkit.modelfile.quantizing import Quantizing, parse_quantizing
from modelkit.modelfile.recipe import Recipe, require_from
from modelkit.modelfile.reference import Reference
from modelkit.modelfile.syntax import Directive
from modelkit.python_faults import unread
from runtime.records import dataclass

__all__ = [
    "DIRECTIVES",
    "PARAMETERS",
    "REFUSED",
    "ROLES",
    "Directive",
    "Modelfile",
    "Parameter",
    "ParameterValue",
    "Parameters",
    "Quantizing",
    "Recipe",
    "Reference",
    "Resolved",
    "check_name",
    "check_parameter",
    "parse_parameter",
    "parse_quantizing",
    "read_recipe",
]

MAX_BYTES = 1 << 20
MAX_LINES = 10_000


@dataclass(frozen=True, slots=True)
class Modelfile:
    """A Modelfile: its directives in order, at least one of them a FROM.

        m = Modelfile.read("Modelfile")
        m = Modelfile((Directive("FROM", "./model"), Directive("PARAMETER", "0.2", name="temperature")))
        Modelfile.parse(str(m)) == m

    Directives made in code get the places they have in `str(m)`, so that errors can name them.
    """

    directives: tuple[Directive, ...]
    file: str = field(default="Modelfile", compare=False)

    def __post_init__(self) -> None:
        arguments.text(self.file, "file")
        directives = tuple(arguments.elements(self.directives, "directives", "Directives"))
        for place, one in enumerate(directives):
            if not isinstance(one, Directive):
                raise arguments.refused(f"directives[{place}]", one, "a Directive")
        if not all(directive.line for directive in directives):
            directives = syntax.parse(syntax.format(directives), self.file)
        require_from(directives, self.file)
        object.__setattr__(self, "directives", directives)

    @classmethod
    def parse(cls, text: str, *, file: str = "Modelfile") -> "Modelfile":
        """From text; `file` is what errors call it. Raises ModelfileError."""
        named = arguments.text(file, "file")
        return cls(syntax.parse(arguments.text(text, "text"), named), named)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Modelfile":
        """From a regular file of at most 1 MiB and 10,000 lines.

        Raises ModelfileError, for a file that is not there as well.
        """
        file, text = _text_of(path)
        return cls.parse(text, file=file)

    def recipe(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        check_template: Callable[[str], object] | None = None,
    ) -> Recipe:
        """What it means. Paths count from `folder`, by default the folder that `file` is in. check_template:
        raises TemplateError for a TEMPLATE that cannot be read, so that this is told with the rest.

        Raises ModelfileError: a path that is not there, a bad parameter, a repeated directive, that TEMPLATE.
        """
        place = Path(self.file).parent if folder is None else Path(folder)
        return Recipe.of(self.directives, place, self.file, check_template=check_template)

    def __str__(self) -> str:
        return syntax.format(self.directives)


def read_recipe(
    path: str | os.PathLike[str],
    folder: Path | None = None,
    *,
    given: bytes | None = None,
    check_template: Callable[[str], object] | None = None,
) -> Recipe:
    """What a file means, as `Modelfile.read(path).recipe(folder)` says it, but that all which is wrong comes
    in one ModelfileError: lines that cannot be read, and what the others say. given: what came another way
    than as a file; `path` is what errors call it then.
    """
    file, text = _text_of(path, given)
    directives, faults = syntax.scan(text, file)
    place = Path(file).parent if folder is None else folder
    return Recipe.of(directives, place, file, check_template=check_template, faults=faults)


def _text_of(path: str | os.PathLike[str], given: bytes | None = None) -> tuple[str, str]:
    """What errors call the file, and what is in it. Raises ModelfileError."""
    file = os.fspath(arguments.path(path, "path"))
    data = _read(file) if given is None else given
    if len(data) > MAX_BYTES:
        raise _refused(file, f"larger than {MAX_BYTES:,} bytes", "Is this a Modelfile?")
    text = syntax.decode(data, file)
    lines = syntax.count_lines(text)
    if lines > MAX_LINES:
        raise _refused(file, f"{lines:,} lines, expected at most {MAX_LINES:,}", "Is this a Modelfile?")
    return file, text


def _read(file: str) -> bytes:
    try:
        with open(file, "rb", opener=_open_at_once) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise _refused(file, "not a regular file", "Name the Modelfile itself, or pipe it into -f -")
            return opened.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise _refused(file, "is a directory", "Name the Modelfile itself.") from None
    except FileNotFoundError:
        raise _refused(
            file,
            "no such file",
            "Name an existing one, or write it: a line such as FROM ./my-model is enough.",
        ) from None
    except (OSError, ValueError) as error:
        raise _refused(file, f"cannot be read: {unread(error)}", None) from error


def _open_at_once(path: str, flags: int) -> int:
    """Opening a named pipe would otherwise wait for its other end."""
    return os.open(path, flags | os.O_NONBLOCK)


def _refused(file: str, message: str, hint: str | None) -> ModelfileError:
    return ModelfileError(message, file=file, line=0, column=0, hint=hint)
