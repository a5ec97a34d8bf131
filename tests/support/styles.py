"""Output styles by their names."""

from modelkit.chat.styles.style import Style
from modelkit.chat.styles.table import style_named


def style_of(name: str) -> Style:
    """The row of that name, which is there."""
    style = style_named(name)
    assert style is not None, name
    return style
