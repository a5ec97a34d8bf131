"""Streamed text is decoded text, cut at characters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkit.errors import TokenizerError
from modelkit.tokenizer import TextStream, Tokenizer, load_tokenizer
from tests.modelkit.tokenizer.small import byte_level, folder_files, write

NAMES = ["tokenizers/gpt-2", "tokenizers/llama-spm", "stories260k", "tiny/llama"]
_LOADED: dict[Path, Tokenizer] = {}


def tokenizer_at(folder: Path) -> Tokenizer:
    if folder not in _LOADED:
        _LOADED[folder] = load_tokenizer(folder_files(folder))
    return _LOADED[folder]


def pieces_of(tokenizer: Tokenizer, ids: Sequence[int], **options: Any) -> list[str]:
    stream = TextStream(tokenizer, **options)
    return [*(stream.push(one) for one in ids), stream.finish()]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=150)
@given(data=st.data())
def test_the_pieces_of_any_ids_make_their_decoded_text(shared_data: Path, name: str, data: st.DataObject):
    tokenizer = tokenizer_at(shared_data / name)
    size = tokenizer.vocab_size
    some = st.one_of(st.integers(0, 300), st.integers(0, size + 3), st.sampled_from([0, 1, 2, size - 1]))
    ids = data.draw(st.lists(some, max_size=40))
    skip = data.draw(st.booleans())
    assert "".join(pieces_of(tokenizer, ids, skip_special=skip)) == tokenizer.decode(ids, skip_special=skip)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=100)
@given(text=st.text(max_size=60))
def test_the_pieces_of_a_text_hold_whole_characters(shared_data: Path, name: str, text: str):
    tokenizer = tokenizer_at(shared_data / name)
    ids = tokenizer.encode(text, add_special=True)
    pieces = pieces_of(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids)
    if "\ufffd" not in text and "\ufffd" not in tokenizer.decode(ids):
        assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=100)
@given(text=st.text(max_size=60))
def test_the_bytes_of_the_tokens_make_the_text(shared_data: Path, name: str, text: str):
    tokenizer = tokenizer_at(shared_data / name)
    ids = tokenizer.encode(text, add_special=False)
    if tokenizer.decode(ids, skip_special=False).strip() == text.strip():
        made = b"".join(tokenizer.bytes_of(one) for one in ids)
        assert made.strip() == text.encode().strip()


@pytest.mark.parametrize("name", NAMES[:3])
def test_an_unfinished_character_is_not_lost(shared_data: Path, name: str):
    tokenizer = tokenizer_at(shared_data / name)
    ids = tokenizer.encode("a😀", add_special=False)[:-1]
    pieces = pieces_of(tokenizer, ids)
    assert "\ufffd" not in "".join(pieces[:-1])
    assert "\ufffd" in pieces[-1]
    assert "".join(pieces) == tokenizer.decode(ids)


@pytest.mark.parametrize("name", ["tokenizers/llama-spm", "stories260k"])
def test_a_text_that_goes_on_keeps_its_leading_space(shared_data: Path, name: str):
    tokenizer = tokenizer_at(shared_data / name)
    before = tokenizer.encode("Once upon", add_special=False)
    ids = tokenizer.encode("Once upon a time", add_special=False)
    text = "".join(pieces_of(tokenizer, ids[len(before) :], continuing=True))
    assert text == " a time"
    assert "".join(pieces_of(tokenizer, ids[len(before) :])) == "a time"


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_keeps_little_however_long_it_is(shared_data: Path, name: str):
    """No stage grows: the work for an id cannot depend on how many came before."""
    tokenizer = tokenizer_at(shared_data / name)
    stream = TextStream(tokenizer)
    ids = tokenizer.encode("Hello, wörld 😀 and so on. ", add_special=False)
    emitted = sum(len(stream.push(one)) for _ in range(500) for one in ids)
    assert emitted + len(stream.finish()) == len(tokenizer.decode(ids * 500))
    assert len(stream.finish()) == 0


DECODERS: dict[str, Any] = {
    "none": None,
    "metaspace": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    "metaspace never": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True},
    "gemma": {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ],
    },
    "strip two": {
        "type": "Sequence",
        "decoders": [
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "Strip", "content": " ", "start": 2, "stop": 0},
        ],
    },
    "strip each": {
        "type": "Sequence",
        "decoders": [
            {"type": "Strip", "content": "▁", "start": 1, "stop": 0},
            {"type": "Replace", "pattern": {"String": "ab"}, "content": "x"},
        ],
    },
    "byte level, then strip": {
        "type": "Sequence",
        "decoders": [
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            {"type": "Strip", "content": "a", "start": 1, "stop": 0},
        ],
    },
}
PIECES = [
    "▁",
    "▁a",
    "a",
    "b",
    "ab",
    "▁▁ab▁",
    "<0xE2>",
    "<0x82>",
    "<0xAC>",
    "<0xFF>",
    "<0x41>",
    "<0xZZ>",
    "é",
    "Ġ",
]


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=150)
@given(ids=st.lists(st.integers(0, len(PIECES) - 1), max_size=12))
def test_every_decoder_streams_as_the_library_decodes(
    tmp_path_factory: pytest.TempPathFactory, name: str, ids: list[int]
):
    folder = Path(name)  # a key only
    if folder not in _LOADED:
        model = {"type": "BPE", "vocab": {piece: n for n, piece in enumerate(PIECES)}, "merges": []}
        document = byte_level(added_tokens=[], model=model, decoder=DECODERS[name])
        _LOADED[folder] = load_tokenizer(write(tmp_path_factory.mktemp("tokenizer"), tokenizer=document))
    tokenizer = _LOADED[folder]
    assert "".join(pieces_of(tokenizer, ids)) == tokenizer.decode(ids)


def test_a_decoder_that_needs_the_end_cannot_stream(tmp_path: Path):
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    tokenizer = load_tokenizer(write(tmp_path, tokenizer=byte_level(decoder=decoder)))
    with pytest.raises(TokenizerError, match="cannot be streamed"):
        TextStream(tokenizer)
