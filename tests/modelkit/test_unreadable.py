"""Files that cannot be read, at once or half way: an error of ours that names the file, or no harm."""

import errno
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import modelkit
from modelkit.errors import ModelkitError
from tests.support.tiny import TEMPLATE, write_model

FILES = (
    *("config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("chat_template.jinja", "chat_template.json", "LICENSE", "README.md"),
)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's path may be a hundred characters long
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


KINDS: dict[str, Callable[[Path], object]] = {
    "fails at once": lambda path: path.symlink_to("/proc/self/mem"),
    "has nothing to give": lambda path: path.symlink_to("/proc/kmsg"),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a pipe": os.mkfifo,
    "a socket": bind,
    "a folder": os.mkdir,
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("good") / "model", template=TEMPLATE)


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    shutil.copytree(good, tmp_path / "model")
    return tmp_path / "model"


def create(folder: Path) -> None:
    modelkit.create(
        modelkit.Modelfile.parse(f"FROM {folder}\nLICENSE MIT"), name="it", home=folder.parent / "home"
    )


def load(folder: Path) -> None:
    with modelkit.load(folder) as model:
        model.generate("A", raw=True, num_predict=1)


def said(work: Callable[[], object]) -> str | None:
    """The error that it ends with, which is one of ours."""
    try:
        work()
    except ModelkitError as error:
        return str(error)
    return None


@pytest.mark.skipif(not Path("/proc/kmsg").exists(), reason="Linux")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_an_odd_file(name: str, kind: str, folder: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    KINDS[kind](folder / name)
    for use in (create, load):
        message = said(lambda use=use: use(folder))
        if message is None:
            assert name not in ("config.json", "model.safetensors", "tokenizer.json")
        else:
            assert name in message or "holds no model weights" in message
            assert len(message) < 800


class Failing:
    """A system call that fails with an I/O error from its n-th use on."""

    def __init__(self, call: Callable[..., int], after: int) -> None:
        self._call, self._left = call, after

    def __call__(self, *arguments: object) -> int:
        self._left -= 1
        if self._left < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._call(*arguments)


@pytest.mark.parametrize("quantize", [None, "q8"])
@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_disk_that_fails_half_way(
    after: int, quantize: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("readv", "preadv"):
        monkeypatch.setattr(os, name, Failing(getattr(os, name), after))
    home = folder.parent / "home"
    with pytest.raises(ModelkitError, match=r"(?i)cannot read .*input/output error"):
        modelkit.create(modelkit.Modelfile.parse(f"FROM {folder}"), name="it", quantize=quantize, home=home)
    monkeypatch.undo()
    assert modelkit.create(modelkit.Modelfile.parse(f"FROM {folder}"), name="it", home=home)


@pytest.mark.parametrize("call", ["stat", "lstat", "scandir", "open", "fstat"])
def test_whatever_a_system_refuses(call: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = getattr(os, call)

    def refuse(path: object, *arguments: object, **named: object) -> object:
        if "model" in str(path) and str(folder) in str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *arguments, **named)

    home, recipe = folder.parent / "home", modelkit.Modelfile.parse(f"FROM {folder}")
    with monkeypatch.context() as patched:
        patched.setattr(os, call, refuse)
        assert str(folder) in (said(lambda: modelkit.create(recipe, name="it", home=home)) or str(folder))


def test_a_home_whose_name_is_no_text_holds_models_as_any_other(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("names are text on this file system")
    shutil.copytree(write_model(tmp_path / "source", template=TEMPLATE), folder / "source")
    (folder / "Modelfile").write_text("FROM ./source")
    answers: list[list[int]] = []
    for home in (tmp_path / "home", folder / "home"):
        modelkit.create(folder / "Modelfile", name="m", home=home)
        with modelkit.load("m", home=home, num_ctx=64) as model:
            answers.append(model.generate("Once", raw=True, num_predict=4, temperature=0).ids)
    assert answers[0] == answers[1]
