"""What a Modelfile means: directives -> Recipe. The last stop before files are opened.

Nothing is lost on the way: a directive either becomes part of the Recipe, is an error at its own place, or a
note. A second FROM, SYSTEM or the like is such an error, since one of the two lines would have had no effect.
All errors of a file are told at once, so that one that was written for Ollama is mended in one go. Reads no
file; looks only at whether the paths exist.
"""

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TypeVar

from modelkit.errors import ModelfileError, ModelkitError, ParameterError, PlanError, TemplateError
from modelkit.modelfile.directives import DIRECTIVES
from modelkit.modelfile.parameter_table import AS_HERE, PASSED_OVER, REFUSED
from modelkit.modelfile.parameters import PARAMETERS, Parameters
from modelkit.modelfile.quantizing import Quantizing, of_draft, parse_quantizing
from modelkit.modelfile.reference import Reference, resolve
from modelkit.modelfile.syntax import COMMENTS, Directive, together
from runtime.quoting import quoted
from runtime.records import dataclass

T = TypeVar("T")

# A parameter's own check has better words.
_MAY_BE_EMPTY = frozenset({"DRAFT", "SYSTEM", "MESSAGE", "PARAMETER"})
_TEXTS = frozenset({"TEMPLATE", "SYSTEM", "MESSAGE", "LICENSE"})  # with a # in it for good reasons
_PROJECTOR = " What Ollama prints second is a projector for images, which nothing here reads."
_NUMBER = r"(0|[1-9][0-9]{0,8})"
_IDENTIFIERS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = re.compile(rf"v?{_NUMBER}(?:\.{_NUMBER}(?:\.{_NUMBER}(-{_IDENTIFIERS})?(?:\+{_IDENTIFIERS})?)?)?")


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything a Modelfile asks for. None and () mean that it does not say, so what FROM brings stays in
    force.
    """

    from_: Reference
    draft: Reference | None = None
    draftless: bool = False
    """Does DRAFT say ""? It takes an inherited draft away."""
    quantize: Quantizing | None = None
    """How the target's weights shall be stored."""
    quantize_draft: Quantizing | None = None
    adapters: tuple[Reference, ...] = ()
    """LoRA adapters, in the order of their lines."""
    parameters: Parameters = field(default_factory=Parameters)
    template: str | None = None
    """The text of TEMPLATE: jinja, Go's language, or the name of a built-in template."""
    system: str | None = None
    """"" is said as well: it takes an inherited one away."""
    licenses: tuple[str, ...] = ()
    messages: tuple[tuple[str, str], ...] = ()
    """Role and text of each."""
    renderer: str | None = None
    """A part of Ollama, by name; only kept here. Whoever packs decides what it is worth, or refuses it."""
    parser: str | None = None
    """As `renderer`."""
    requires: str | None = None
    """Three numbers and perhaps a pre-release, without the "v" and build metadata."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What was passed over, for the user."""
    places: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """Where directives stand, those of a keyword in their order: (keyword, `file:line:column`). The keyword
    of a parameter has its name: `PARAMETER num_keep`.
    """

    @classmethod
    def of(
        cls,
        directives: Sequence[Directive],
        folder: Path,
        file: str = "Modelfile",
        *,
        check_template: Callable[[str], object] | None = None,
        faults: Sequence[ModelfileError] = (),
    ) -> "Recipe":
        """The meaning of `directives` in a Modelfile of `folder`. check_template: raises TemplateError for a
        TEMPLATE that cannot be read. faults: of other lines, to be told with these.

        Raises ModelfileError at the first line at fault; its message has those of all others too.
        """
        made = _Maker(directives, folder, file, faults)
        quantize, quantize_draft = made.quantizing()
        source = made.source()
        recipe = cls(
            from_=source,
            draft=made.part(made.draft, None),
            draftless=made.text("DRAFT") == "",
            quantize=quantize,
            quantize_draft=quantize_draft,
            adapters=made.adapters(),
            parameters=made.parameters(),
            template=made.part(lambda: made.template(check_template), None),
            system=made.text("SYSTEM"),
            licenses=tuple(d.value for d in made.all("LICENSE")),
            messages=tuple((d.name or "", d.value) for d in made.all("MESSAGE")),
            renderer=made.text("RENDERER"),
            parser=made.text("PARSER"),
            requires=made.part(made.requires, None),
            notes=tuple(made.notes),
            places=made.places(),
        )
        made.raise_errors()
        return recipe

    @contextmanager
    def at(self, keyword: str, number: int = 0) -> Generator[None]:
        """Whatever is wrong with what a directive names, found when it is opened, gets the directive's place
        in front. number: which of those with that keyword.
        """
        try:
            yield
        except ModelkitError as error:
            places = [place for named, place in self.places if named == keyword]
            place = places[number] if number < len(places) else None
            if place is None or isinstance(error, ModelfileError):
                raise
            raise type(error)(f"{place}: {error.message}", hint=error.hint) from error


def require_from(directives: Sequence[Directive], file: str) -> None:
    """Raises ModelfileError where no directive is a FROM."""
    if not any(directive.keyword == "FROM" for directive in directives):
        example = DIRECTIVES["FROM"].example
        raise ModelfileError("no FROM line", file=file, line=1, column=1, hint=f"Example: {example}")


class _Maker:
    """The directives by keyword, each checked as far as the table goes. What is wrong is kept until
    `raise_errors`; a part that is wrong is as if it was not there.
    """

    def __init__(
        self, directives: Sequence[Directive], folder: Path, file: str, faults: Sequence[ModelfileError]
    ) -> None:
        if not faults:  # else one of those lines may have been meant for it
            require_from(directives, file)
        self._folder = folder
        self._file = file
        self._errors = [*faults]
        self._remarked = {
            one.line for one in directives if one.keyword not in _TEXTS and re.search(r"\s#", one.value)
        }
        self.notes: list[str] = []
        self._found: dict[str, list[Directive]] = {keyword: [] for keyword in DIRECTIVES}
        for directive in directives:
            if self.part(lambda one=directive: self._checked(one), False):
                self._found[directive.keyword].append(directive)

    def part(self, make: Callable[[], T], otherwise: T) -> T:
        """What `make` makes, or `otherwise` where that is an error, which is kept."""
        try:
            return make()
        except ModelfileError as error:
            if error.line in self._remarked:
                error.hint = COMMENTS
            self._errors.append(error)
            return otherwise

    def raise_errors(self) -> None:
        """One ModelfileError for all, in the order of their lines; none where nothing is wrong."""
        if self._errors:
            raise together(self._errors)

    def places(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            (
                f"{keyword} {directive.name}" if keyword == "PARAMETER" else keyword,
                f"{self._file}:{directive.line}:{directive.column}",
            )
            for keyword, found in self._found.items()
            for directive in found
        )

    def _checked(self, directive: Directive) -> bool:
        row = DIRECTIVES[directive.keyword]
        blank = not (directive.value.strip() if row.keyword == "LICENSE" else directive.value)
        if blank and row.keyword not in _MAY_BE_EMPTY:
            raise self._error(directive, f"{row.keyword} needs {row.takes}", f"Example: {row.example}")
        earlier = self._found[row.keyword]
        if earlier and not row.repeats:
            what = f"a second {row.keyword}; the first is on line {earlier[0].line}"
            hint = "A Modelfile has at most one. Remove one of the two."
            hint += _PROJECTOR if row.keyword == "FROM" else ""
            raise self._error(directive, what, hint)
        return True

    def all(self, keyword: str) -> list[Directive]:
        return self._found[keyword]

    def text(self, keyword: str) -> str | None:
        directive = self._one(keyword)
        return None if directive is None else directive.value

    def reference(self, directive: Directive, *, name_allowed: bool = True) -> Reference:
        return resolve(directive, self._folder, self._file, name_allowed=name_allowed)

    def source(self) -> Reference:
        nothing = Reference("", None)  # never seen: the error that goes with it is raised
        directive = self._one("FROM")
        if directive is None:
            return nothing
        return self.part(lambda: self.reference(directive), nothing)

    def adapters(self) -> tuple[Reference, ...]:
        found = [
            self.part(lambda one=one: self.reference(one, name_allowed=False), None)
            for one in self.all("ADAPTER")
        ]
        return tuple(one for one in found if one is not None)

    def quantizing(self) -> tuple[Quantizing | None, Quantizing | None]:
        """What the QUANTIZE lines say of the target, and of the draft."""
        found: dict[bool, Quantizing] = {}
        for directive in self.all("QUANTIZE"):
            self.part(lambda one=directive: self._quantizing(one, found), None)
        return found.get(False), found.get(True)

    def _quantizing(self, directive: Directive, found: dict[bool, Quantizing]) -> None:
        draft, text = of_draft(directive.value)
        if draft in found:
            what = f"a second QUANTIZE for the {'draft' if draft else 'target'}"
            raise self._error(directive, f"{what}; see {found[draft].place}", "Remove one of the two.")
        try:
            said = parse_quantizing(text, self._folder)
        except PlanError as error:
            raise self._error(directive, error.message, error.hint) from error
        found[draft] = replace(said, place=f"{self._file}:{directive.line}:{directive.column}")

    def draft(self) -> Reference | None:
        directive = self._one("DRAFT")
        return self.reference(directive) if directive is not None and directive.value else None

    def parameters(self) -> Parameters:
        made, lines = Parameters(), dict[str, int]()
        for directive in self._found["PARAMETER"]:
            name = directive.name or ""
            if _passed_over(name, directive.value):
                place = f"{self._file}:{directive.line}"
                self.notes.append(f"{place}: PARAMETER {name} is passed over: {REFUSED[name]}")
                continue
            before, lines_before = made, dict(lines)
            made = self.part(
                lambda one=directive, at=before, seen=lines_before: self._with(one, at, seen), before
            )
            lines.setdefault(name, directive.line)
        return made

    def _with(self, directive: Directive, made: Parameters, lines: dict[str, int]) -> Parameters:
        name = directive.name or ""
        if name in made and not PARAMETERS[name].repeats:
            what = f"{name} is set a second time; line {lines[name]} sets it first"
            raise self._error(directive, what, "Remove one of the two lines.")
        try:
            return made.added(name, directive.value)
        except ParameterError as error:
            raise self._error(directive, error.message, error.hint) from error

    def template(self, check: Callable[[str], object] | None) -> str | None:
        directive = self._one("TEMPLATE")
        if directive is None:
            return None
        if check is not None:
            try:
                check(directive.value)
            except TemplateError as error:
                raise self._error(directive, error.message, error.hint) from error
        return directive.value

    def requires(self) -> str | None:
        directive = self._one("REQUIRES")
        if directive is None:
            return None
        version = _VERSION.fullmatch(directive.value)
        if version is None:
            message = f"{quoted(directive.value)} is not a version"
            raise self._error(directive, message, f"Example: {DIRECTIVES['REQUIRES'].example}")
        major, minor, patch, pre = version.groups()
        return f"{major}.{minor or 0}.{patch or 0}{pre or ''}"

    def _one(self, keyword: str) -> Directive | None:
        return next(iter(self._found[keyword]), None)

    def _error(self, directive: Directive, message: str, hint: str | None) -> ModelfileError:
        place = {"line": directive.line, "column": directive.column}
        return ModelfileError(message, file=self._file, **place, hint=hint)


def _passed_over(name: str, value: str) -> bool:
    return name in PASSED_OVER or value.lower() in AS_HERE.get(name, ())
