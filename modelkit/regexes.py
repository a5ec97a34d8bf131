"""Regular expressions of strangers: how long could `re` try one?

`re` goes back and tries again wherever a pattern leaves something open, holding the interpreter's lock
meanwhile: `(a|a)` fifty times in a row takes years on fifty letters.
"""

import re
import sys
from math import prod

_ONE = re.compile(r"\\.|\[[^]]*\]", re.DOTALL)
"""One character, of which a pattern says which it may be, or that it is itself."""


def ways(text: str) -> int:
    """At most so many ways lead through a pattern, repetitions (`*`, `+`, `{`) apart."""
    if "(?#" in text:  # a comment could hide what follows it
        return sys.maxsize
    found, before = 1, ""
    groups = [1]  # so many alternatives the open ones have
    for sign in _ONE.sub("x", text):
        if sign == "(":
            groups.append(1)
        elif sign == "|":
            groups[-1] += 1
        elif sign == ")" and len(groups) > 1:
            found *= groups.pop()
        elif sign == "?" and before != "(":
            found *= 2
        before = sign
    return found * prod(groups)
