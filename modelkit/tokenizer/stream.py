"""Ids to text while they come: whole characters only, nothing lost, nothing decoded twice.

For every sequence of ids, what `push` returned and what `finish` returned make, joined, exactly
`Tokenizer.decode` of the sequence. The work per id does not grow with the text: a decoder is a row of
stages, and each stage keeps only what it cannot give away yet (bytes of an unfinished character; a run of
byte tokens, which is valid or not as a whole).
"""

from collections.abc import Sequence

from modelkit.tokenizer.decoding import ByteLevel, stages_of
from modelkit.tokenizer.tokenizer import Tokenizer


class TextStream:
    """The text of one sequence of ids, in pieces.

    `continuing` says that the ids go on from a text already there: then a leading space, which decoders in
    SentencePiece's manner drop from the start of a text, is part of what is returned.
    Raises TokenizerError for a decoder that cannot work piece by piece (none of a generating model's).
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True, continuing: bool = False) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special else frozenset[int]()
        self._stages = stages_of(tokenizer.decoder, continuing=continuing)
        self._only = self._stages[0] if len(self._stages) == 1 else None

    def push(self, id: int) -> str:  # noqa: A002  # the field's word for it
        """The text that this id completes; often its own, sometimes none, sometimes more."""
        piece = None if id in self._skipped else self._tokenizer.id_to_piece(id)
        if piece is None:
            return ""
        return "".join(self._only.push(piece)) if self._only else self._through([piece], 0)

    def push_each(self, ids: Sequence[int]) -> list[str]:
        """As `push` of one after the other, of ids that a model has drawn."""
        if isinstance(self._only, ByteLevel) and self._skipped.isdisjoint(ids):
            pieces = [piece for piece in self._tokenizer.ids_to_pieces(ids) if piece is not None]
            if len(pieces) == len(ids):
                return self._only.push_each(pieces)
        return [self.push(one) for one in ids]

    def finish(self) -> str:
        """What is still held back. An unfinished character becomes U+FFFD, as in `decode`."""
        rest = ""
        for number, stage in enumerate(self._stages):
            rest += self._through(stage.finish(), number + 1)
        return rest

    def _through(self, pieces: Sequence[str], first: int) -> str:
        for stage in self._stages[first:]:
            pieces = [out for piece in pieces for out in stage.push(piece)]
        return "".join(pieces)
