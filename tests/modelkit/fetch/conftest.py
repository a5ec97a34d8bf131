"""A store, a registry on loopback, and limits that let a test wait for moments only."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modelkit.address import RegistryAddress
from modelkit.fetch.access import Access
from modelkit.fetch.pull import Make, Pulled
from modelkit.fetch.registry.pull import pull as fetched
from modelkit.fetch.registry.wire import Limits
from modelkit.pack.build import build
from modelkit.store import Name, Store
from tests.support.fake_registry import FakeRegistry

QUICK = Limits(pause_s=0.01, longest_pause_s=0.05)  # for what works: a busy machine may take its time
SHORT = Limits(connect_s=0.2, silence_s=0.2, answer_s=0.2, pause_s=0.01, longest_pause_s=0.02, attempts=2)


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's passwords, no proxies, and no waiting for the disk."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    for name in ("REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DOCKER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as running:
        yield running


def at(registry: FakeRegistry, repository: str = "amy/story", tag: str | None = "q4") -> RegistryAddress:
    return RegistryAddress(registry.host, repository, tag)


def pull(
    address: RegistryAddress, name: Name, store: Store, access: Access, make: Make = build, **options: Any
) -> Pulled:
    """As `modelkit pull` does it."""
    return fetched(address, name, store, access, make, **options)
