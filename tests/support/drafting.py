"""Drafting whatever it pays, for tests that are about tokens and not about speed."""

import pytest

from runtime.speculate.depth import DepthController


def always_drafting(monkeypatch: pytest.MonkeyPatch, depths: int = 7) -> None:
    """Depths 0 to depths - 1 in turn."""
    turn = iter(range(10**9))
    monkeypatch.setattr(DepthController, "choose", lambda self: next(turn) % depths)
    monkeypatch.setattr(DepthController, "next_depth", lambda self: 1)
