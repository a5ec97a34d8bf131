"""One strict digest: the only thing a blob's path is built from."""

import hashlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.errors import StoreError
from modelkit.store import Digest

HEX = "0123456789abcdef" * 4

HOSTILE: list[object] = [
    "",
    HEX,
    f"sha256:{HEX[:-1]}",
    f"sha256:{HEX}0",
    f"sha256:{HEX.upper()}",
    f"SHA256:{HEX}",
    f"sha256-{HEX}",
    f"sha512:{HEX}",
    f"sha256:{HEX}\n",
    f" sha256:{HEX}",
    f"sha256:{HEX[:-1]}\x00",
    f"sha256:{HEX[:-1]}٣",
    "sha256:" + "../" * 21 + "a",
    "sha256:../../../../etc/passwd",
    "sha256-..%2f",
    None,
    7,
    b"sha256:" + HEX.encode(),
    ["sha256:" + HEX],
    "x" * 10**6,
]


def test_a_digest_reads_back_as_itself():
    assert str(Digest.parse(f"sha256:{HEX}")) == f"sha256:{HEX}"
    assert Digest.of(b"abc").hex == hashlib.sha256(b"abc").hexdigest()


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_anything_else_is_refused(text: object):
    with pytest.raises(StoreError) as caught:
        Digest.parse(text)
    assert len(caught.value.message) < 250


@given(st.text())
def test_no_text_is_taken_for_a_digest(text: str):
    for spelled in (text, f"sha256:{text}"):
        with pytest.raises(StoreError):
            Digest.parse(spelled)


def test_refusing_a_digest_opens_no_file():
    watching = True
    opened: list[str] = []
    sys.addaudithook(lambda event, args: opened.append(event) if watching and event == "open" else None)
    for text in HOSTILE:
        with pytest.raises(StoreError):
            Digest.parse(text)
    watching = False
    assert opened == []
