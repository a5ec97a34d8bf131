"""`\\d` as 0 to 9, in expressions of the `regex` parameter and of grammars in Lark's syntax.

The library takes digits of any script for it. A model that likes to begin with an emoji then finds that the
first bytes of one may begin a digit, too, and writes a date in signs of old computers. `\\w` and `\\s` stay
those of all scripts; `\\p{Nd}` is any digit.
"""

import re

from modelkit.grammars.notations.outline import LEXEME

_PARTS = re.compile(r"\\.|\[\^?\]?|\]|[^\\\[\]]+", re.DOTALL)
_DIGITS = {r"\d": ("[0-9]", "0-9"), r"\D": ("[^0-9]", "[^0-9]")}
"""Outside of a class, and in one."""


def in_expression(expression: str) -> str:
    """An expression in the syntax of Rust's regex crate."""
    depth, parts = 0, list[str]()
    for part in _PARTS.findall(expression):
        if part[0] == "[":
            depth += 1  # a bracket that closes nothing is a character of the class that it begins
        elif part == "]":
            depth = max(depth - 1, 0)
        parts.append(_DIGITS[part][depth > 0] if part in _DIGITS else part)
    return "".join(parts)


def in_grammar(lark: str) -> str:
    """The expressions of a grammar, which stand between slashes."""
    return LEXEME.sub(
        lambda lexeme: in_expression(lexeme[0]) if _is_expression(lexeme[0]) else lexeme[0], lark
    )


def _is_expression(lexeme: str) -> bool:
    return lexeme[0] == "/" and not lexeme.startswith("//")
