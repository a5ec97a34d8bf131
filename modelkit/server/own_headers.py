"""Headers of our own in a response: what was asked for and changed nothing, and what could not be kept to.

What stands in them comes from requests and models, so it is cut and has only characters that a header takes.
"""

import re
from collections.abc import Iterable

from starlette.responses import Response

IGNORED = "x-modelkit-ignored"
"""Names of fields, options and tools that changed nothing, with commas between."""
OWN = (IGNORED,)
_MOST_NAMES = 32
_LONGEST_NAME = 64
_NO_NAME = re.compile(r"[^\x21-\x2b\x2d-\x7e]+")


def with_ignored(response: Response, ignored: Iterable[str]) -> Response:
    """The response with the header that names what changed nothing, where there is such."""
    names = [_NO_NAME.sub("?", name)[:_LONGEST_NAME] for name in dict.fromkeys(ignored)]
    if len(names) > _MOST_NAMES:
        names[_MOST_NAMES:] = [f"... {len(names) - _MOST_NAMES} more"]
    if names:
        response.headers[IGNORED] = ", ".join(names)
    return response
