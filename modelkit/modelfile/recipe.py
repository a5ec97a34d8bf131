"""What a Modelfile means: directives -> Recipe. The last stop before files are opened.

Nothing is lost on the way: a directive either becomes part of the Recipe or is an error at its own place. A
second FROM, SYSTEM or the like is such an error, since one of the two lines would have had no effect. Reads
no file; looks only at whether the paths exist.
"""

import os
import re
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from modelkit.errors import ModelfileError, ParameterError
from modelkit.modelfile.directives import DIRECTIVES
from modelkit.modelfile.parameters import PARAMETERS, Parameters
from modelkit.modelfile.reference import Reference, resolve
from modelkit.modelfile.syntax import Directive

_MAY_BE_EMPTY = frozenset({"SYSTEM", "MESSAGE", "PARAMETER"})  # a parameter's own check has better words
_NUMBER = r"(0|[1-9][0-9]{0,8})"
_IDENTIFIERS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = re.compile(rf"v?{_NUMBER}(?:\.{_NUMBER}(?:\.{_NUMBER}(-{_IDENTIFIERS})?(?:\+{_IDENTIFIERS})?)?)?")
_GO_ACTION = re.compile(
    r"""\{\{-?\s*(?:
        \.                                   # {{ .Prompt }}   {{ . }}
      | \$ | /\*                             # {{ $role := ... }}   {{/* a comment */}}
      | (?:else\s+)?(?:if|with)\s            # {{ if and .System .Prompt }}
      | range\s+[.$] | (?:define|block|template)\s+["`]
      | [A-Za-z]\w*\s+(?:\.[A-Z]|\.\s|\$)    # {{ json .Messages }}
    )[^}]{0,40}(?:\}\})?""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything a Modelfile asks for.

    None and () mean that the Modelfile does not say, so what FROM brings stays in force; an empty `system`
    is said, and takes an inherited one away. `renderer` and `parser` name built-in parts of Ollama and are
    only kept here: whoever packs decides what a name is worth, or refuses it. `requires` is three numbers and
    perhaps a pre-release, without the "v" and build metadata.
    """

    from_: Reference
    draft: Reference | None = None
    adapters: tuple[Reference, ...] = ()
    parameters: Parameters = field(default_factory=Parameters)
    template: str | None = None
    system: str | None = None
    licenses: tuple[str, ...] = ()
    messages: tuple[tuple[str, str], ...] = ()
    renderer: str | None = None
    parser: str | None = None
    requires: str | None = None

    @classmethod
    def of(cls, directives: Sequence[Directive], folder: Path, file: str = "Modelfile") -> "Recipe":
        """The meaning of `directives` in a Modelfile of `folder`.

        Raises ModelfileError at the line at fault.
        """
        made = _Maker(directives, folder, file)
        return cls(
            from_=made.source(),
            draft=made.draft(),
            adapters=tuple(made.reference(d, name_allowed=False) for d in made.all("ADAPTER")),
            parameters=made.parameters(),
            template=made.template(),
            system=made.text("SYSTEM"),
            licenses=tuple(d.value for d in made.all("LICENSE")),
            messages=tuple((d.name or "", d.value) for d in made.all("MESSAGE")),
            renderer=made.text("RENDERER"),
            parser=made.text("PARSER"),
            requires=made.requires(),
        )


def require_from(directives: Sequence[Directive], file: str) -> None:
    """Raises ModelfileError where no directive is a FROM."""
    if not any(directive.keyword == "FROM" for directive in directives):
        example = DIRECTIVES["FROM"].example
        raise ModelfileError("no FROM line", file=file, line=1, column=1, hint=f"Example: {example}")


class _Maker:
    """The directives by keyword, each checked as far as the table goes."""

    def __init__(self, directives: Sequence[Directive], folder: Path, file: str) -> None:
        require_from(directives, file)
        self._folder = folder
        self._file = file
        self._found: dict[str, list[Directive]] = {keyword: [] for keyword in DIRECTIVES}
        for directive in directives:
            self._check(directive)
            self._found[directive.keyword].append(directive)

    def _check(self, directive: Directive) -> None:
        row = DIRECTIVES[directive.keyword]
        if not directive.value and row.keyword not in _MAY_BE_EMPTY:
            raise self._error(directive, f"{row.keyword} needs {row.takes}", f"Example: {row.example}")
        earlier = self._found[row.keyword]
        if earlier and not row.repeats:
            what = f"a second {row.keyword}; the first is on line {earlier[0].line}"
            raise self._error(directive, what, "A Modelfile has at most one. Remove one of the two.")

    def all(self, keyword: str) -> list[Directive]:
        return self._found[keyword]

    def text(self, keyword: str) -> str | None:
        directive = self._one(keyword)
        return None if directive is None else directive.value

    def reference(self, directive: Directive, *, name_allowed: bool = True) -> Reference:
        return resolve(directive, self._folder, self._file, name_allowed=name_allowed)

    def source(self) -> Reference:
        return self.reference(self._found["FROM"][0])

    def draft(self) -> Reference | None:
        directive = self._one("DRAFT")
        if directive is None:
            return None
        draft, source = self.reference(directive), self.source()
        if draft.path and source.path and os.path.realpath(draft.path) == os.path.realpath(source.path):
            message = f"DRAFT is the same path as FROM on line {source.line}: {draft.text!r}"
            raise self._error(directive, message, "A draft pays when it is smaller than its target.")
        return draft

    def parameters(self) -> Parameters:
        made, lines = Parameters(), dict[str, int]()
        for directive in self._found["PARAMETER"]:
            name = directive.name or ""
            if name in made and not PARAMETERS[name].repeats:
                what = f"{name} is set a second time; line {lines[name]} sets it first"
                raise self._error(directive, what, "Remove one of the two lines.")
            try:
                made = made.added(name, directive.value)
            except ParameterError as error:
                raise self._error(directive, error.message, error.hint) from error
            lines[name] = directive.line
        return made

    def template(self) -> str | None:
        directive = self._one("TEMPLATE")
        if directive is None:
            return None
        if action := go_action(directive.value):
            raise self._error(
                directive,
                f"this TEMPLATE is a Go template (it has {action!r}); a TEMPLATE is jinja here",
                "Leave TEMPLATE out to use the chat template that came with the model, or write it in jinja. "
                f"Example: {DIRECTIVES['TEMPLATE'].example}",
            )
        return directive.value

    def requires(self) -> str | None:
        directive = self._one("REQUIRES")
        if directive is None:
            return None
        version = _VERSION.fullmatch(directive.value)
        if version is None:
            message = f"{reprlib.repr(directive.value)} is no version"
            raise self._error(directive, message, f"Example: {DIRECTIVES['REQUIRES'].example}")
        major, minor, patch, pre = version.groups()
        return f"{major}.{minor or 0}.{patch or 0}{pre or ''}"

    def _one(self, keyword: str) -> Directive | None:
        return next(iter(self._found[keyword]), None)

    def _error(self, directive: Directive, message: str, hint: str | None) -> ModelfileError:
        place = {"line": directive.line, "column": directive.column}
        return ModelfileError(message, file=self._file, **place, hint=hint)


def go_action(template: str) -> str | None:
    """The first action of a Go template, such as `{{ .Prompt }}`; None for jinja and for plain text.

    Go has no `{%` and a jinja chat template can hardly do without, so neither is taken for the other even
    where it quotes it.
    """
    if "{%" in template or "{#" in template:
        return None
    action = _GO_ACTION.search(template)
    return action[0] if action else None
