"""What a prompt ends with where the model shall not think, whatever a word in its messages says.

Some templates look for `/think` and `/no_think` in messages, and such a word wins over their own variable,
or is all the switch they have. Both ends are seen by rendering; a prompt that should have the one and has
the other is given the right one. What the model is told by a word that stays in its message (Qwen3) is not
changed here.

Pure.
"""

from collections.abc import Callable

from modelkit.chat.styles.derive import common_start
from runtime.records import dataclass

WORDS = ("/think", "/no_think")
"""On and off."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The two ends of a prompt, behind what they have in common."""

    on: str
    off: str

    def held(self, text: str) -> str:
        """The prompt with the end that keeps the model from thinking."""
        if (self.off and text.endswith(self.off)) or not text.endswith(self.on):
            return text
        return text.removesuffix(self.on) + self.off


def ends_of(on: str | None, off: str | None, asked: str) -> Ends | None:
    """on, off: prompts whose last message is `asked`; None where the template refuses. None where they end
    alike: then the switch is elsewhere in them.
    """
    if on is None or off is None or asked not in on or asked not in off:
        return None
    one, other = (text.rpartition(asked)[2] for text in (on, off))
    if one == other:
        return None
    same = len(common_start(one, other))
    return Ends(one[same:], other[same:])


def spoken(text: Callable[[str], str | None], asked: str) -> Ends | None:
    """For a template that is told by a word alone. text: the prompt of `asked` behind a system message."""
    on, off = (text(word) for word in WORDS)
    return ends_of(on, off, asked)
