"""What answers begin with."""

import importlib.metadata
from types import SimpleNamespace
from typing import Any

import pytest

from modelkit import __version__
from modelkit.server.openai.answer_head import head_of


def started(digest: str) -> Any:
    return SimpleNamespace(model=SimpleNamespace(name="m"), digest=digest, created_s=7.0)


def test_a_fingerprint_is_of_program_and_package_and_reads_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def distribution(name: str) -> Any:
        pytest.fail(f"an answer has read the files of {name}, on the event loop's thread")

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    one, again, other = (head_of("id", "m", started(digest)) for digest in ("a", "a", "b"))
    assert one.fingerprint == again.fingerprint != other.fingerprint
    assert one.fingerprint.startswith("fp_")
    assert __version__ not in one.fingerprint
