"""Text of several lines: it stands between three quotes and three quotes."""

from modelkit.cli.terminal.lines import Reader

QUOTES = '"""'


def unfinished(text: str) -> bool:
    """Is a block open at the end of it? Then its lines go on."""
    return text.count(QUOTES) % 2 == 1


def unquoted(text: str) -> str:
    """The text between three quotes and three quotes, or the text as it is."""
    inner = text.strip()
    in_quotes = len(inner) >= 2 * len(QUOTES) and inner.startswith(QUOTES) and inner.endswith(QUOTES)
    return inner[len(QUOTES) : -len(QUOTES)] if in_quotes else text


def read_block(read: Reader, prompt: str = ">>> ") -> str:
    """One line, or several where a block is open at its end. An editor gives all of them at once."""
    text = read(prompt)
    while unfinished(text):
        text += "\n" + read("... ")
    return text
