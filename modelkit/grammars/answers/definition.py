"""A shape's grammar as the library takes it."""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from modelkit.errors import RequestError
from modelkit.grammars.answers.answer import Answer, AnswerParts
from modelkit.grammars.answers.messages import Messages
from modelkit.grammars.answers.shape import Shape
from modelkit.grammars.calls.argument_names import unwritable_name
from modelkit.grammars.calls.tools import Schema, Tool, checked
from modelkit.grammars.notations.outline import DEEPEST_RULE, depth_of_rules
from modelkit.grammars.rules.rules import Marks, Outcomes
from modelkit.grammars.schemas.loosening import Loosened


def of_usable_tools(
    shape: Shape, why_not: Callable[[Schema], str | None], least: Callable[[Schema], Loosened | None]
) -> tuple[Shape, list[str]]:
    """See `tools.checked`."""

    def without(schema: Schema) -> Loosened | None:
        return None if unwritable_name(shape.style, schema) else least(schema)

    tools, notes = checked(
        shape.tools, lambda schema: unwritable_name(shape.style, schema) or why_not(schema), without
    )
    return replace(shape, tools=tuple(tools)), notes


def with_any_arguments(shape: Shape, why: str) -> tuple[Shape, list[str]]:
    """With any object as arguments: what can be enforced where all schemas together are too much."""
    _, notes = checked(shape.tools, lambda _: why)
    return replace(shape, tools=tuple(Tool(tool.name, {"type": "object"}) for tool in shape.tools)), notes


def definition(
    shape: Shape,
    form: str | None,
    marks: Marks,
    plain: Collection[int],
    stops: Collection[int],
    outcome: Outcomes,
) -> tuple[str, list[str]] | None:
    """(the definition, notes on what it does not enforce). form: the definition of the form alone. None for
    one that would be too deep for the library. Raises RequestError for a strict tool's schema that cannot be
    enforced in all.
    """
    wanted = AnswerParts(
        shape.style,
        shape.opening,
        shape.tools,
        shape.choice,
        shape.named,
        shape.parallel,
        form is not None,
        shape.form is not None and shape.form.kind == "schema",
    )
    header = shape.style.header is not None
    whole = (
        Messages(wanted, marks, plain, outcome, stops) if header else Answer(wanted, marks, plain, outcome)
    )
    try:
        lark = whole.lark()
    except RecursionError:  # schemas in schemas
        return None
    if lark.count("\n") > DEEPEST_RULE and depth_of_rules(lark) > DEEPEST_RULE:  # a rule is one line
        return None
    grammars = [{"name": "answer", "lark_grammar": lark}]
    if form is not None:
        inner = json.loads(form)["grammars"][0] if form.startswith("{") else {"lark_grammar": form}
        grammars.append({**{key: value for key, value in inner.items() if value is not None}, "name": "form"})
    return json.dumps({"grammars": grammars}), _notes(shape, whole.notes)


def _notes(shape: Shape, left: Sequence[tuple[str, str]]) -> list[str]:
    strict = {tool.name for tool in shape.tools if tool.strict}
    for name, what in left:
        if name in strict:
            raise RequestError(f"the parameters of the strict tool {name} cannot be enforced: {what}")
    return [f"arguments of {name} are not held to all of its schema: {what}" for name, what in left]
