"""push, pull, login and logout as commands."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.fake_registry import Auth, FakeRegistry

Run = Callable[..., Result]
Create = Callable[..., None]


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
    with FakeRegistry() as running:
        yield running


def test_out_and_back(modelkit: Run, created: Create, registry: FakeRegistry) -> None:
    created("story")
    address = f"oci://{registry.host}/amy/story:q4"
    pushed = json.loads(modelkit("push", "story", address, "--json").stdout)
    assert pushed["address"] == address
    assert pushed["sent_bytes"] > 0
    again = modelkit("push", "story", address).stdout
    assert again.startswith(f"pushed story {pushed['digest'][7:19]} to {address} (0 B of ")
    modelkit("rm", "story")
    pulled = json.loads(modelkit("pull", address, "--json").stdout)
    assert (pulled["name"], pulled["digest"]) == ("amy/story:q4", pushed["digest"])
    assert modelkit("run", "amy/story:q4", "a", "-p", "num_predict=2").exit_code == 0
    assert modelkit("verify").exit_code == 0


def test_from_takes_a_package_of_a_registry(
    modelkit: Run, created: Create, registry: FakeRegistry, tmp_path: Path
) -> None:
    created("story", "SYSTEM Be brief.")
    address = f"oci://{registry.host}/amy/story:q4"
    modelkit("push", "story", address)
    modelkit("rm", "story")
    (tmp_path / "Modelfile").write_text(f"FROM {address}\nPARAMETER temperature 0.5\n")
    create = ("create", "mine", "-f", str(tmp_path / "Modelfile"))
    refused = modelkit(*create, "--offline")
    assert (refused.exit_code, "1:1" in refused.stderr, "--offline" in refused.stderr) == (1, True, True)
    assert modelkit(*create).exit_code == 0
    asked = len(registry.log)
    assert modelkit(*create, "--offline").exit_code == 0
    assert len(registry.log) == asked  # what was pulled once is not asked for again
    assert modelkit("show", "mine", "--system").stdout.strip() == "Be brief."
    assert {row["name"] for row in json.loads(modelkit("list", "--json").stdout)} == {
        "amy/story:q4",
        "mine",
    }


def test_a_package_is_not_quantized_by_a_pull(modelkit: Run, created: Create, registry: FakeRegistry) -> None:
    created("story")
    modelkit("push", "story", f"oci://{registry.host}/amy/story")
    result = modelkit("pull", f"oci://{registry.host}/amy/story", "--name", "new", "--quantize", "q4")
    assert result.exit_code == 1
    assert "is a package already" in result.stderr


def test_a_password_comes_from_standard_input(modelkit: Run, registry: FakeRegistry, tmp_path: Path) -> None:
    registry.auth = Auth("bearer")
    wrong = modelkit("login", registry.host, "-u", "amy", "--password-stdin", stdin="wr0ng\n")
    assert (wrong.exit_code, "wr0ng" in wrong.output) == (1, False)
    right = modelkit("login", registry.host, "-u", "amy", "--password-stdin", stdin="s3cret\n")
    assert right.exit_code == 0
    assert f"logged in to {registry.host} as amy" in right.stdout
    assert "s3cret" not in right.output
    assert json.loads(modelkit("logout", registry.host, "--json").stdout)["files"] == [
        str(tmp_path / "auth.json")
    ]
    assert modelkit("logout", registry.host).stdout == f"nothing was saved for {registry.host}\n"


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (("--password-stdin",), "x", "needs --username"),
        (("-u", "amy"), "", "no terminal to ask on"),
        (("-u", "amy", "--password-stdin"), "", "not a password"),
        (("-u", "amy", "--password-stdin"), b"\xff\xfe", "not a password"),
        (("-u", "amy", "--password-stdin"), "one\ntwo\n", "not a password"),
        (("-u", "a:b", "--password-stdin"), "x", "without `:`"),
    ],
)
def test_what_is_no_password(
    arguments: tuple[str, ...], stdin: str | bytes, said: str, modelkit: Run, registry: FakeRegistry
) -> None:
    result = modelkit("login", registry.host, *arguments, stdin=stdin)
    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert not registry.log


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("push", "story", "story"), "is not a place in a registry"),
        (("push", "story", "hf.co/amy/story"), "is not a place in a registry"),
        (("push", "gone", "oci://127.0.0.1:9/amy/story"), "there is no model gone"),
        (("push", "story", "oci://127.0.0.1:9/amy/story@sha256:" + "0" * 64), "pushed to a tag"),
        (("push", "story", "ollama.com/amy/story"), "packages of Ollama's only"),
        (("push", "story", "oci://127.0.0.1:9/Amy/Story"), "is not a repository"),
        (("push", "story", "oci://127.0.0.1:9/amy/story"), "cannot reach 127.0.0.1:9: "),
        (("pull", "oci://127.0.0.1:9/amy/story", "--offline"), "--offline forbids"),
        (("login", "hf.co", "-u", "a", "--password-stdin"), "no registry to log in to"),
    ],
)
def test_what_does_not_work_says_why(
    arguments: tuple[str, ...], said: str, modelkit: Run, created: Create
) -> None:
    if "story" in arguments:
        created("story")
    result = modelkit(*arguments, stdin="x\n")
    assert result.exit_code == 1
    assert said in result.stderr.replace("\n  ", " ")
