"""Is a TEMPLATE in Go's language, as Ollama's are, or in jinja?"""

import re

_ACTION = re.compile(
    r"""\{\{-?\s*(?:
        \.                                   # {{ .Prompt }}   {{ . }}
      | \$ | /\*                             # {{ $role := ... }}   {{/* a comment */}}
      | (?:else\s+)?(?:if|with)\s            # {{ if and .System .Prompt }}
      | range\s+[.$] | (?:define|block|template)\s+["`]
      | [A-Za-z]\w*\s+(?:\.[A-Z]|\.\s|\$)    # {{ json .Messages }}
    )""",
    re.VERBOSE,
)


def is_go(template: str) -> bool:
    """True for Go's, False for jinja and for plain text.

    Go has no `{%` and a jinja chat template can hardly do without, so neither is taken for the other even
    where it quotes it.
    """
    return "{%" not in template and "{#" not in template and _ACTION.search(template) is not None
