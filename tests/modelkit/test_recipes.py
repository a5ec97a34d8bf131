"""The programs of docs/recipes.md run as they stand there, against the example model."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import modelkit
from tests.support.running_server import Running, running

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:11434"
_PART = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_PROGRAM = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = {name: found for name, text in _PART.findall(PAGE) for found in _PROGRAM.findall(text)}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recipes")
    modelkit.create(ROOT / "Modelfile.example", name="island", quantize_draft="q4", home=root)
    modelkit.create(ROOT / "examples" / "caller" / "Modelfile", name="caller", home=root)
    return root


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Running]:
    with running(home) as server:
        yield server


def web_service(space: dict[str, Any], printed: str) -> bool:
    from starlette.testclient import TestClient

    with TestClient(space["app"]) as client:
        whole = client.get("/answer", params={"question": "Who lives in the lighthouse?"}).json()["text"]
        return "lighthouse" in whole and "Pip" in client.get("/story", params={"about": "Pip"}).text


def three_times_the_same(space: dict[str, Any], printed: str) -> bool:
    return len(said := printed.strip().split("\n")) == 3 and len({*said}) == 1


CHECKS: dict[str, Callable[[dict[str, Any], str], bool]] = {
    "JSON into types": lambda space, printed: 1 <= space["visit"].hours <= 12,
    "Many prompts at once": lambda space, printed: len(space["stories"]) == 4 and all(space["stories"]),
    "Search by meaning": lambda space, printed: (
        sorted(space["near"].tolist()) == [0, 1, 2, 3] and len(printed.splitlines()) == 3
    ),
    "A web service of your own": web_service,
    "Tools, in Python": lambda space, printed: (
        space["messages"][2].content.endswith(f"{space['call'].arguments['place']}.") and printed != ""
    ),
    "Tools, through OpenAI's client": lambda space, printed: (
        [role(one) for one in space["messages"]] == ["user", "assistant", "tool", "assistant"]
    ),
    "The same questions in three dialects": three_times_the_same,
}


def role(message: Any) -> str:
    return message["role"] if isinstance(message, dict) else message.role


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recipe_works(
    name: str,
    home: Path,
    server: Running,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "fastapi" in PROGRAMS[name]:
        pytest.importorskip("fastapi", reason="FastAPI is not installed here")
    monkeypatch.setenv("MODELKIT_HOME", str(home))
    space: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(PROGRAMS[name].replace(ADDRESS, server.address), name, "exec"), space)
    assert CHECKS[name](space, capsys.readouterr().out)
