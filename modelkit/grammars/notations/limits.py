"""What a grammar in Lark's syntax must be before it is compiled, its JSON schemas included
(`schemas.limits`).
"""

import re
from collections.abc import Mapping

from modelkit.grammars.notations.endless_rules import endless_rule
from modelkit.grammars.notations.outline import DEEPEST_RULE, depth_of_rules, outlined, schemas_in
from modelkit.grammars.schemas.limits import LONGEST_TEXT, schema_fault

_TEMPERATURE = re.compile(r"\[[^\]]* temperature =")  # of an outline
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')


def grammar_fault(text: str) -> str | None:
    """A sentence on why it is not compiled."""
    deep = depth_of_rules(text)
    if deep > DEEPEST_RULE:
        return f"its rules refer to each other {deep:,} deep; at most {DEEPEST_RULE} are taken"
    if _TEMPERATURE.search(outlined(text)):
        return "the temperature of a rule has no effect here; give the request one"
    if (long := max(map(len, _QUOTED.findall(text)), default=0)) > LONGEST_TEXT:
        return f"it has a text of {long:,} characters between quotes; at most {LONGEST_TEXT:,} are taken"
    if (rule := endless_rule(text)) is not None:
        return (
            f"the rule {rule.split()[0]} never comes to an end: each way to write it needs one that does not"
        )
    wrong = (schema_fault(one) for one in schemas_in(text) if isinstance(one, Mapping))
    return next((why for why in wrong if why), None)
