"""Text from outside, made safe to show in a message."""

MAX_SHOWN = 120
UTF_8 = "utf-8-sig"
"""How texts of people are decoded: a byte order mark, as editors of Windows put in front, is none of it."""


def shown(text: str) -> str:
    """`text` fit for one line of a terminal: at most 120 characters, control characters as escapes."""
    plain = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return plain if len(plain) <= MAX_SHOWN else f"{plain[:MAX_SHOWN]}… ({len(text):,} characters)"
