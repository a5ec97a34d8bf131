"""Who tells an answer's parts apart, as the stream above sees it."""

from collections.abc import Sequence
from typing import Protocol

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import Style
from modelkit.output.events import Event, Text
from modelkit.output.pieces import Piece
from runtime.engine.request import TokenLogprob


class Splitter(Protocol):
    """One answer. Used by one thread at a time."""

    def push(self, piece: Piece) -> list[Event]:
        """What this piece lets out; what may yet become a mark is held back."""
        ...

    def push_each(
        self, texts: Sequence[str], ids: Sequence[int], logprobs: Sequence[TokenLogprob]
    ) -> list[Event]:
        """As `push` of a piece for each of these tokens, at least one and none of them special. What they let
        out may be joined (`joining`). logprobs: one for each, or none.
        """
        ...

    def finish(self, *, cut: bool = False) -> list[Event]:
        """What was held back. Nothing comes after it. cut: the model had not ended."""
        ...


class Plain:
    """An answer that is all text: special tokens have none."""

    def push(self, piece: Piece) -> list[Event]:
        return [] if piece.special is not None else [Text(piece.text, piece.ids, piece.logprobs)]

    def push_each(
        self, texts: Sequence[str], ids: Sequence[int], logprobs: Sequence[TokenLogprob]
    ) -> list[Event]:
        return [Text("".join(texts), tuple(ids), tuple(logprobs))]

    def finish(self, *, cut: bool = False) -> list[Event]:
        return []


def splitter_for(
    style: Style | None,
    opening: Opening,
    tools: object = None,
    earlier_calls: int = 0,
    *,
    json: bool = False,
) -> Splitter:
    """For one answer.

    style: the model's; None for one that marks nothing.
    opening: where the answer begins, of `opening_of` and `forced`.
    tools: those of the request, in OpenAI's shape; without any, no call is looked for, and what looks like
    one is text.
    earlier_calls: how many calls the conversation has had, for styles that count them in their ids.
    json: the answer's text is a JSON value.
    """
    if style is None:
        return Plain()
    from modelkit.output.header_splitter import HeaderSplitter  # only here: readers of every kind of call
    from modelkit.output.reading.schemas import arguments_of
    from modelkit.output.text_splitter import TextSplitter

    schemas = arguments_of(tools)
    if style.header:
        return HeaderSplitter(style, style.header, opening, schemas, earlier_calls)
    return TextSplitter(style, opening, schemas, earlier_calls, json=json)
