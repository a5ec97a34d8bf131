from pathlib import Path

import pytest

from modelkit.pack.licenses import license_files


@pytest.fixture
def licensed(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "LICENSE").write_text("MIT\n")
    return {"LICENSE": tmp_path / "LICENSE", "README.md": tmp_path / "README.md"}


def test_a_license_is_a_file_of_its_own() -> None:
    assert license_files({}, ["mine"]) == {"LICENSE": b"mine"}


def test_the_sources_license_stays_and_ours_stands_beside_it(licensed: dict[str, Path]) -> None:
    assert license_files(licensed, ["mine", "yours"]) == {"LICENSE-2": b"mine", "LICENSE-3": b"yours"}


def test_a_text_that_is_there_is_not_repeated(licensed: dict[str, Path]) -> None:
    assert license_files(licensed, ["MIT", "mine", "mine\n"]) == {"LICENSE-2": b"mine"}
