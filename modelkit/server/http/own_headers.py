"""Headers of our own in a response: what was asked for and changed nothing, and what could not be kept to.

What stands in them comes from requests and models, so it is cut and has only characters that a header takes.
"""

import re
from collections.abc import Iterable
from itertools import islice

from starlette.responses import Response

IGNORED = "x-modelkit-ignored"
"""Names of fields, options and tools that changed nothing, with commas between."""
NOTES = "x-modelkit-notes"
"""Sentences on what of the request could not be enforced, with ` | ` between."""
OWN = (IGNORED, NOTES)
_MOST_NAMES = 32
_LONGEST_NAME = 64
_MOST_NOTES = 8
_LONGEST_NOTE = 300
_NO_TEXT = re.compile(r"[^\x20-\x7b\x7d\x7e]+")
_NO_NAME = re.compile(r"[^\x21-\x2b\x2d-\x7e]+")


def with_ignored(response: Response, ignored: Iterable[str]) -> Response:
    """The response with the header that names what changed nothing, where there is such."""
    every = dict.fromkeys(ignored)
    names = [_NO_NAME.sub("?", name)[:_LONGEST_NAME] for name in islice(every, _MOST_NAMES)]
    if len(every) > _MOST_NAMES:
        names.append(f"... {len(every) - _MOST_NAMES} more")
    if names:
        response.headers[IGNORED] = ", ".join(names)
    return response


def with_notes(response: Response, notes: Iterable[str]) -> Response:
    """The response with the header that says what could not be enforced, where there is such."""
    every = dict.fromkeys(notes)
    said = [_NO_TEXT.sub("?", note).strip()[:_LONGEST_NOTE] for note in islice(every, _MOST_NOTES)]
    if len(every) > _MOST_NOTES:
        said.append(f"... {len(every) - _MOST_NOTES} more")
    if said:
        response.headers[NOTES] = " | ".join(said)
    return response
