"""The grammar of a whole answer, as the library takes it or a sentence on why it does not."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from modelkit.grammars.answers.definition import definition
from modelkit.grammars.answers.shape import Shape
from modelkit.grammars.compiling.matchers import Start, begun, definition_of, outcome_of
from modelkit.grammars.compiling.refusals import first_line
from modelkit.grammars.forms import Form
from modelkit.grammars.rewriting.unenforced import without_unenforced
from modelkit.grammars.rules.rules import Marks, Outcome

if TYPE_CHECKING:
    import llguidance

Made = tuple[Start, Sequence[str]]
"""(where its answers start, sentences on what it does not enforce)."""


class Attempts:
    """For one request, which may ask less of its answers each time. What is found of a terminal is kept.

    form: of the answer's text; marks, plain, stops: as in `definition.definition`. Raises RequestError for a
    form that none takes.
    """

    def __init__(
        self,
        native: "llguidance.LLTokenizer",
        form: Form | None,
        marks: Marks,
        plain: Collection[int],
        stops: Collection[int],
    ) -> None:
        self._native, self._marks, self._plain, self._stops = native, marks, plain, stops
        self._form, self._unheld = None, tuple[str, ...]()
        if form is not None:
            known, self._unheld = without_unenforced(form)
            self._form = definition_of(known, marks, native.eos_tokens)
        self._outcomes = dict[str, Outcome]()

    def made(self, shape: Shape, notes: Sequence[str]) -> Made | str:
        """notes: on what the shape leaves out already. Raises RequestError for a strict tool's schema that
        cannot be enforced in all.
        """
        made = self._made(shape, notes)
        if isinstance(made, str) and shape.style.loose:  # who reads them looks at calls without marks, too
            made = self._made(replace(shape, style=replace(shape.style, loose=False)), notes)
        return made

    def _made(self, shape: Shape, notes: Sequence[str]) -> Made | str:
        found = definition(shape, self._form, self._marks, self._plain, self._stops, self._outcome)
        if found is None:
            return "together with this model's way to write them they nest too deep"
        start = begun(self._native, found[0])
        if start.matcher.is_error():
            return first_line(start.matcher.get_error())
        return start, [*notes, *self._unheld, *found[1]]

    def _outcome(self, body: str) -> Outcome:
        if body not in self._outcomes:
            self._outcomes[body] = outcome_of(self._native, body)
        return self._outcomes[body]
