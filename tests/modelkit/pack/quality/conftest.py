"""Two tiny models and a text, the real `create` with few texts, and a home of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modelkit.cli.main import cli
from modelkit.comparing import texts
from modelkit.pack.quality import reading
from tests.support.tiny import write_model

Run = Callable[..., Result]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SIZES", reading.Sizes(3, 2, 24, 12, 4))
    monkeypatch.setattr(texts, "TEXTS", 2)
    monkeypatch.setattr(texts, "TOKENS", 24)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: None) -> Path:
    monkeypatch.setenv("MODELKIT_HOME", str(tmp_path / "home"))
    write_model(tmp_path / "target", seed=0, num_hidden_layers=2)
    write_model(tmp_path / "draft", seed=0, num_hidden_layers=1)
    (tmp_path / "text.txt").write_text("It was a bright cold day in April. " * 40)
    return tmp_path


@pytest.fixture
def create(home: Path) -> Run:
    """create(name, *lines of the Modelfile, options=(...))"""

    def run(name: str, *lines: str, options: tuple[str, ...] = (), source: str = "./target") -> Result:
        (home / "Modelfile").write_text("\n".join([f"FROM {source}", *lines]) + "\n")
        arguments = ["create", name, "-f", str(home / "Modelfile"), *options, "--json"]
        return CliRunner().invoke(cli, arguments, catch_exceptions=False)

    return run
