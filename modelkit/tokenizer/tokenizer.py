"""Text to ids and back. One Tokenizer serves every thread: nothing in it changes after loading."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from modelkit.errors import RequestError, TokenizerError
from modelkit.tokenizer.decoding import bytes_of
from modelkit.tokenizer.fingerprint import fingerprint_of
from modelkit.tokenizer.native import guarded
from modelkit.tokenizer.special import Specials
from runtime.config.text import levels
from runtime.quoting import quoted, shown

if TYPE_CHECKING:
    import tokenizers

MOST_CHARS = 4_000_000
MOST_EOS = 256
_QUOTED = 20  # characters in front of a fault, which say where it is
_LONG = 4096  # characters, or ids: about a millisecond


class Tokenizer:
    """Made by `load_tokenizer`.

    `specials` holds the texts of the special tokens; `bos_id` and `eos_id` the ids of two of them, None where
    the model has no such token. `decoder` is the decoder part of tokenizer.json.
    """

    def __init__(
        self,
        native: "tokenizers.Tokenizer",
        *,
        specials: Specials,
        add_bos: bool,
        add_eos: bool,
        keeps_end: bool,
        decoder: Mapping[str, Any] | None,
        vocab_size: int,
        cleans: bool | None = None,
    ) -> None:
        self._native = native
        self.specials = specials
        self.decoder = decoder
        self._cut_side = "left" if keeps_end else "right"
        self.vocab_size = vocab_size
        """One more than the largest id. A model's embedding may have more rows, never fewer."""
        self.cleans = cleans
        """`clean_up_tokenization_spaces` of its files; None: they do not say. Nothing is cleaned here."""
        self.bos_id = self._id_of(specials.bos)
        self.eos_id = self._id_of(specials.eos)
        own = native.num_special_tokens_to_add(False)
        self._before = [self.bos_id] if add_bos and not own and self.bos_id is not None else []
        self._after = [self.eos_id] if add_eos and not own and self.eos_id is not None else []
        self._frame_tokens = own + len(self._before) + len(self._after)

    def _id_of(self, text: str | None) -> int | None:
        return None if text is None else self.piece_to_id(text)

    def piece_to_id(self, piece: str) -> int | None:
        """The id of a vocabulary entry as it stands there, or of an added token; None for none."""
        return self._native.token_to_id(piece)

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """The ids of `text`. Special tokens written in it are recognised as such.

        `add_special` frames the text as the model expects a bare prompt, usually with BOS in front. A prompt
        made by a chat template already has its frame: encode it without.
        Raises RequestError for a text too long or with half a surrogate pair.
        """
        encoding = self._encoded(text, add_special=add_special)
        return [*self._before, *encoding.ids, *self._after] if add_special else encoding.ids

    def _encoded(self, text: str, *, add_special: bool) -> "tokenizers.Encoding":
        """Of a long text as of several: only then the library lets go of the interpreter's lock, which all
        streams of a server and its engine wait for.
        """
        if len(text) > MOST_CHARS:
            raise RequestError(f"the text has {len(text):,} characters; at most {MOST_CHARS:,} are taken")
        if not text.isascii():
            _check_surrogates(text)

        def encode() -> "tokenizers.Encoding":
            if len(text) < _LONG:
                return self._native.encode(text, add_special_tokens=add_special)
            return self._native.encode_batch_fast([text], add_special_tokens=add_special)[0]

        return guarded("encoding a text", encode)

    def _decoded(self, ids: list[int]) -> str:
        if len(ids) < _LONG:
            return self._native.decode(ids, skip_special_tokens=False)
        return self._native.decode_batch([ids], skip_special_tokens=False)[0]

    def encode_within(self, text: str, most: int) -> tuple[list[int], int]:
        """The ids of a text in its frame, `most` at most, and how many of its own were cut off for that,
        at its end or, where the files say so, its beginning (`truncation_side`). The frame (a BOS, an end
        token) stays whole. Raises RequestError where nothing fits in.
        """
        native = self._encoded(text, add_special=False)
        room = most - self._frame_tokens
        dropped = max(len(native.ids) - room, 0)
        if dropped:
            if room < 1:
                raise RequestError(f"{most:,} tokens have no room for a text beside the tokens that frame it")
            native.truncate(room, direction=self._cut_side)
        framed = guarded("encoding a text", lambda: self._native.post_process(native, None, True))
        return [*self._before, *framed.ids, *self._after], dropped

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of `ids`. Ids that are not tokens (a model may have spare ones) are left out.

        Special tokens are told by their ids: the library looks at their text, as its normalizer leaves it.
        """
        skipped = self.special_ids if skip_special else frozenset[int]()
        plain = [one for one in map(_checked_id, ids) if one not in skipped]
        return guarded("decoding ids", lambda: self._decoded(plain))

    def id_to_piece(self, id: int) -> str | None:  # noqa: A002  # the field's word for it
        """The vocabulary entry of an id as it stands there (`Ġthe`, `<0xE2>`); None where no token is."""
        return self._native.id_to_token(_checked_id(id))

    def ids_to_pieces(self, ids: Sequence[int]) -> list[str | None]:
        """As `id_to_piece` of each, for ids that a model has drawn: they are not checked."""
        return [self._native.id_to_token(one) for one in ids]

    def bytes_of(self, id: int) -> bytes:  # noqa: A002  # the field's word for it
        """What an id stands for within a text: whole characters or a part of one; a special token is its own
        name; b"" where no token is.
        """
        piece = self.id_to_piece(id)
        return b"" if piece is None else bytes_of(self.decoder)(piece)

    def bytes_of_all(self, size: int) -> list[bytes]:
        """`bytes_of` of the ids below `size`."""
        of = bytes_of(self.decoder)
        return [b"" if piece is None else of(piece) for piece in self.ids_to_pieces(range(size))]

    def cut(self, text: str) -> list[int]:
        """The ids of a text in which no added token is looked for."""
        native = self._native
        if native.normalizer is not None:
            text = native.normalizer.normalize_str(text)
        parts = [text]
        if native.pre_tokenizer is not None:
            parts = [part for part, _ in native.pre_tokenizer.pre_tokenize_str(text)]
        model = native.model
        return [token.id for part in parts for token in model.tokenize(part)]

    def __contains__(self, piece: object) -> bool:
        """Is this a vocabulary entry or an added token?"""
        return isinstance(piece, str) and self.piece_to_id(piece) is not None

    @cached_property
    def pieces(self) -> Mapping[str, int]:
        """Every vocabulary entry and added token, with its id."""
        return self._native.get_vocab(with_added_tokens=True)

    @cached_property
    def added(self) -> "Mapping[int, tokenizers.AddedToken]":
        """Tokens that are found in a text before it is cut into others, by id."""
        return self._native.get_added_tokens_decoder()

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids that `decode` leaves out."""
        return frozenset(one for one, token in self.added.items() if token.special)

    def eos_ids(
        self, generation_config: Mapping[str, Any] | None = None, config: Mapping[str, Any] | None = None
    ) -> frozenset[int]:
        """Every id that ends a text: the tokenizer's own and those the model's two configs name.

        `config` may be a wrapper's: ids that it and its text model name all count. Raises TokenizerError for
        an id that neither the tokenizer nor the model's `vocab_size` has.
        """
        sources = [("generation_config.json", generation_config or {})]
        sources += [("config.json", level) for _, level in levels(config or {})]
        sizes = [source.get("vocab_size") for _, source in sources]
        limit = max([self.vocab_size, *(size for size in sizes if type(size) is int)])
        found = {one for file, source in sources for one in _end_ids(source, file, limit)}
        return frozenset(found | ({self.eos_id} if self.eos_id is not None else set()))

    def to_json(self) -> str:
        """All of it in the form of a tokenizer.json, added and special tokens included."""
        return self._native.to_str()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of model type, pieces, merges and added tokens: equal for equal tokenizers."""
        return fingerprint_of(self._native.to_str())


def _end_ids(source: Mapping[str, Any], file: str, limit: int) -> Sequence[int]:
    value = source.get("eos_token_id")
    ids: list[int] = [] if value is None else value if isinstance(value, list) else [value]
    if len(ids) > MOST_EOS:
        raise TokenizerError(f"{file}: eos_token_id has {len(ids):,} ids; at most {MOST_EOS:,} were expected")
    if not all(type(one) is int and 0 <= one < limit for one in ids):
        raise TokenizerError(f"{file}: eos_token_id is {quoted(value)}; ids below {limit} were expected")
    return ids


def _checked_id(one: object) -> int:
    if type(one) is not int or not 0 <= one < 2**32:
        # Python writes no number of more than 4,300 digits.
        said = "a number of 20 or more digits" if type(one) is int and abs(one) > 2**64 else str(one)
        raise RequestError(f"{shown(said)} is not a token id; ids are whole numbers from 0")
    return one


def _check_surrogates(text: str) -> None:
    """Python has halves of their own for bytes of arguments and terminals that are not text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        half, before = ord(text[error.start]), text[max(error.start - _QUOTED, 0) : error.start]
        if 0xDC80 <= half <= 0xDCFF:
            fault, hint = f"is not UTF-8: byte {half - 0xDC00:02x}", "Convert it first."
        else:
            fault, hint = f"has half of a surrogate pair, which is not a character: U+{half:04X}", None
        where = f"behind {quoted(before)}" if before else "at its beginning"
        raise RequestError(f"the text {fault} {where}", hint=hint) from error
