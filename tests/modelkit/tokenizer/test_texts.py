"""Texts to ids and back: what is refused, what is framed and cut, and long texts beside others' work."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modelkit.errors import RequestError
from modelkit.tokenizer import load_tokenizer
from tests.modelkit.tokenizer.small import byte_level, folder_files, load, template

CONFIG: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"}


def test_spare_ids_decode_to_nothing(tmp_path: Path):
    tokenizer = load(tmp_path)
    assert tokenizer.decode([2, 5000, 3]) == "ab"
    assert tokenizer.id_to_piece(5000) is None
    assert tokenizer.id_to_piece(28) == "Ġ"


@pytest.mark.parametrize("one", [-1, 2**32, True, 1.0, "1", None])
def test_what_is_no_id_is_refused(tmp_path: Path, one: Any):
    with pytest.raises(RequestError, match="not a token id"):
        load(tmp_path).decode([one])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ab\ud800", r"half of a surrogate pair, which is not a character: U\+D800 behind 'ab'"),
        ("one caf\udce9 two", "is not UTF-8: byte e9 behind 'one caf'"),  # typed in a Latin-1 terminal
        ("\udce9", "is not UTF-8: byte e9 at its beginning"),
    ],
)
def test_a_lone_surrogate_is_refused(text: str, says: str, tmp_path: Path):
    with pytest.raises(RequestError, match=says):
        load(tmp_path).encode(text, add_special=False)


def test_a_text_beyond_bounds_is_refused(tmp_path: Path):
    with pytest.raises(RequestError, match="4,000,001 characters"):
        load(tmp_path).encode("a" * 4_000_001, add_special=False)


def test_a_long_text_is_read_and_written_as_a_short_one(shared_data: Path):
    for name in ("gpt-2", "llama-spm"):
        tokenizer = load_tokenizer(folder_files(shared_data / "tokenizers" / name))
        line = "So long, \u00e9 and \u65e5\u672c: it's  1234 <s> \U0001f600.\n"
        many = 4096 // len(line) + 1
        ids = tokenizer.encode(line * many, add_special=False)
        native = tokenizer._native  # pyright: ignore[reportPrivateUsage]  # what it does with a short text
        assert ids == native.encode(line * many, add_special_tokens=False).ids
        assert tokenizer.decode(ids, skip_special=False) == native.decode(ids, skip_special_tokens=False)
        framed, dropped = tokenizer.encode_within(line * many, len(ids) // 2)
        assert len(framed) == len(ids) // 2
        assert len(ids) - dropped <= len(framed)


@pytest.mark.parametrize(
    ("parts", "flags"),
    [({"post_processor": template()}, {}), ({}, {"add_bos_token": True, "add_eos_token": True}), ({}, {})],
    ids=["a post-processor", "flags", "no frame"],
)
def test_a_text_that_is_cut_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: Any, flags: Any
) -> None:
    """And framed as a whole one is."""
    tokenizer: Any = load(tmp_path, tokenizer=byte_level(**parts), tokenizer_config={**CONFIG, **flags})
    text, read, encoded = "cdcdcd", list[str](), tokenizer._encoded
    whole, bare = (tokenizer.encode(text, add_special=special) for special in (True, False))
    before = whole.index(bare[0])
    behind = len(whole) - len(bare) - before
    monkeypatch.setattr(tokenizer, "_encoded", lambda text, **how: read.append(text) or encoded(text, **how))
    for kept in range(1, len(bare) + 1):
        framed = [*whole[:before], *bare[:kept], *whole[len(whole) - behind :]]
        assert tokenizer.encode_within(text, len(framed)) == (framed, len(bare) - kept)
    assert tokenizer.encode_within(text, 99) == (whole, 0)
    assert len(read) == len(bare) + 1


@pytest.fixture
def switch_only_when_released() -> Iterator[None]:
    """No thread is made to give up the interpreter's lock: another one runs where it is let go."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(usual_s)


@pytest.mark.usefixtures("switch_only_when_released")
@pytest.mark.parametrize("way", ["encode", "decode"])
def test_others_have_their_turn_while_a_long_text_is_read(tmp_path: Path, way: str) -> None:
    """All streams of a server, and its engine, wait for the interpreter's lock."""
    tokenizer, turns, ended = load(tmp_path), list[int](), threading.Event()
    text = "abc " * 200_000
    ids = tokenizer.encode(text, add_special=False)

    def others() -> None:
        while not ended.is_set():
            turns.append(1)
            time.sleep(0)

    def turns_meanwhile() -> int:
        before = len(turns)
        if way == "encode":
            tokenizer.encode(text, add_special=False)
        else:
            tokenizer.decode(ids)
        return len(turns) - before

    thread = threading.Thread(target=others)
    thread.start()
    try:
        # Who may run need not get a processor within these milliseconds: some of a few tries do.
        assert any(turns_meanwhile() for _ in range(20))
    finally:
        ended.set()
        thread.join()
