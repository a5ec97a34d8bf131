from io import BytesIO
from pathlib import Path

import pytest

from modelkit.python_faults import unread
from modelkit.text_files import read_text


@pytest.mark.parametrize("data", ["Märchen\n", "\ufeffMärchen\n"])
def test_a_text_is_read_without_its_byte_order_mark(data: str) -> None:
    assert read_text(BytesIO(data.encode()), 20) == "Märchen\n"


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"x" * 5, "it is larger than 4 bytes"), (b"ab\xff", "byte 2 (0xff) is not UTF-8")],
)
def test_what_is_no_such_text_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=r"4 bytes|start byte") as caught:
        read_text(BytesIO(data), 4)
    assert unread(caught.value) == said


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev/zero")
def test_a_file_without_an_end_is_read_no_further_than_a_large_one() -> None:
    with Path("/dev/zero").open("rb") as file, pytest.raises(ValueError, match="larger than 100 bytes"):
        read_text(file, 100)
