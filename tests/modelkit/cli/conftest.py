"""The command line against a store of its own, and a tiny model with a byte-level tokenizer."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modelkit.cli.main import cli
from tests.support.tiny import write_model


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models `target` and `draft`."""
    root = tmp_path_factory.mktemp("checkpoints")
    for seed, (name, layers) in enumerate((("target", 2), ("draft", 1))):
        write_model(root / name, seed=seed, num_hidden_layers=layers)
    return root


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test has one, it is like most."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """MODELKIT_HOME, not there yet; no server is known."""
    monkeypatch.delenv("MODELKIT_HOST", raising=False)
    monkeypatch.setenv("MODELKIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def modelkit(home: Path) -> Callable[..., Result]:
    """`modelkit("list", "--json")` as a shell would run it, standard input being a pipe."""

    def run(*arguments: str, stdin: str | bytes = "") -> Result:
        return CliRunner().invoke(cli, list(arguments), input=stdin, catch_exceptions=False)

    return run


@pytest.fixture
def modelfile(tmp_path: Path, checkpoints: Path) -> Callable[..., Path]:
    """Write a Modelfile that starts from the target; `lines` follow."""

    def write(*lines: str, folder: str = "My Story") -> Path:
        path = tmp_path / folder / "Modelfile"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([f"FROM {checkpoints / 'target'}", *lines]) + "\n")
        return path

    return write


@pytest.fixture
def draft_line(checkpoints: Path) -> str:
    return f"DRAFT {checkpoints / 'draft'}"


@pytest.fixture
def created(modelkit: Callable[..., Result], modelfile: Callable[..., Path]) -> Callable[..., None]:
    """Create a package of that name from the target and further lines of a Modelfile."""

    def create(name: str, *lines: str) -> None:
        result = modelkit("create", name, "-f", str(modelfile(*lines)))
        assert result.exit_code == 0, result.output

    return create


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Callable[..., Result]:
    """The same, for files that import modelkit."""
    return request.getfixturevalue("modelkit")
