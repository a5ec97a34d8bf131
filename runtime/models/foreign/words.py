"""Errors of somebody else's Python, in words about the model."""

import re


def reason(fault: BaseException) -> str:
    """What went wrong inside a class of mlx-lm, as far as its exception tells a user."""
    text = str(fault)
    match fault:
        case KeyError():
            return f"it wants {text.strip(chr(39))}, which is not there"
        case TypeError() if missing := re.search(r"missing \d+ required .*: (.+)", text):
            return f"it wants {missing[1]}"
        case ValueError() | NotImplementedError() if text and len(text) < 200:
            return text
        case ImportError():
            return f"another package is wanted ({text[:120]})"
        case _:
            return f"its own code fails on it ({type(fault).__name__})"
