"""A fresh store per test. No test here cuts the power, so none waits for the disk."""

import os
from pathlib import Path

import pytest

from modelkit.store import Store


@pytest.fixture(autouse=True)
def no_disk_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")
