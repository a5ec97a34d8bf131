"""Prompts for the middle of a text: what stands before and behind it, between the tokens that code models
were trained with for that.

The spellings are those of the models' own cards; a vocabulary has all three of a row, or cannot do it.
"""

from collections.abc import Container

from modelkit.tokenizer.tokenizer import Tokenizer
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Marks:
    """The three tokens of one way to ask."""

    before: str
    """Stands in front of the text before the gap."""
    behind: str
    """Stands in front of the text behind it."""
    gap: str
    """The last token of the prompt; "" where what is in front of the gap comes last."""

    @property
    def written(self) -> tuple[str, ...]:
        return tuple(mark for mark in (self.before, self.behind, self.gap) if mark)


ROWS = (
    Marks("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen 2.5 and 3 (Coder), Gemma (CodeGemma)
    Marks("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    Marks("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    Marks("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek: hole and end in these places
    Marks("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
    Marks("<PRE>", "<SUF>", "<MID>"),  # StableCode, Refact
    Marks("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # CodeGeeX 4, GLM
    Marks("[PREFIX]", "[SUFFIX]", ""),  # Codestral: the text behind the gap comes first
)


def infill(tokenizer: Tokenizer, before: str, behind: str) -> list[int] | None:
    """The prompt's ids; None for a vocabulary without such tokens."""
    vocabulary = tokenizer.pieces
    row = marks_in(vocabulary)
    if row is None:
        return None
    framed = tokenizer.encode("", add_special=True)  # with BOS, where prompts begin with it
    start = framed[:1] if framed[:1] == [tokenizer.bos_id] else []
    lead = [vocabulary[row.before], *tokenizer.encode(before, add_special=False)]
    rest = [vocabulary[row.behind], *tokenizer.encode(behind, add_special=False)]
    return [*start, *rest, *lead] if not row.gap else [*start, *lead, *rest, vocabulary[row.gap]]


def marks_in(vocabulary: Container[str]) -> Marks | None:
    """How a model with these tokens is asked to fill a gap; None where it cannot."""
    return next((row for row in ROWS if all(mark in vocabulary for mark in row.written)), None)
