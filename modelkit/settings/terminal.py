"""What a terminal can show."""

import os
from collections.abc import Mapping


def knows_escapes(env: Mapping[str, str] = os.environ) -> bool:
    """Does the terminal, if there is one, act on escape sequences? TERM=dumb, as in editors, shows them."""
    return env.get("TERM") != "dumb"


def wants_color(env: Mapping[str, str] = os.environ) -> bool:
    """Does it, and has nobody asked for none? NO_COLOR, as no-color.org says it."""
    return knows_escapes(env) and not env.get("NO_COLOR")
