"""The Modelfile as a value and as a file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from modelkit.errors import ModelfileError, RequestError
from modelkit.modelfile import MAX_BYTES, Directive, Modelfile


def refusal(path: Path) -> str:
    with pytest.raises(ModelfileError) as caught:
        Modelfile.read(path)
    return str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "\n", "   ", "# only a note", "SYSTEM x", "PARAMETER model x", "PARAMETER from x"]
)
def test_without_from_there_is_no_modelfile(text: str):
    with pytest.raises(ModelfileError, match=r"^Modelfile:1:1: no FROM line\nExample: FROM \./my-model$"):
        Modelfile.parse(text)


def test_directives_made_in_code_have_their_place_in_the_text():
    made = Modelfile((Directive("FROM", "a"), Directive("SYSTEM", "one\ntwo"), Directive("REQUIRES", "new")))
    assert [d.line for d in made.directives] == [1, 2, 4]
    with pytest.raises(ModelfileError, match="Modelfile:4:1: 'new' is not a version"):
        made.recipe()


def test_text_reads_back_as_the_same_modelfile():
    made = Modelfile.parse('# note\nfrom a\nmessage user """\n"quoted"\n"""\nSYSTEM ""')
    assert Modelfile.parse(str(made)) == made
    assert str(made) == 'FROM a\nMESSAGE user """\n"quoted"\n"""\nSYSTEM \n'


def test_read_names_the_file_in_errors(tmp_path: Path):
    path = tmp_path / "My.modelfile"
    path.write_bytes(b"FROM a\r\nBAD x\r\n")
    assert refusal(path).startswith(f"{path}:2:1: 'BAD' is not a directive")


def test_paths_count_from_the_folder_of_the_file(tmp_path: Path):
    (tmp_path / "model").mkdir()
    (tmp_path / "Modelfile").write_text("FROM ./model")
    assert Modelfile.read(tmp_path / "Modelfile").recipe().from_.path == tmp_path / "model"


def test_missing_file_is_an_error(tmp_path: Path):
    assert "no such file" in refusal(tmp_path / "Modelfile")


def test_folder_is_an_error(tmp_path: Path):
    assert refusal(tmp_path).endswith("is a directory\nName the Modelfile itself.")


def test_named_pipe_is_an_error_and_nobody_waits_for_it(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refusal(tmp_path / "pipe")


def test_impossible_file_name_is_an_error():
    with pytest.raises(RequestError, match="no NUL"):
        Modelfile.read(Path("a\0b"))


def test_size_is_bounded(tmp_path: Path):
    path = tmp_path / "Modelfile"
    path.write_text("FROM a\n".ljust(MAX_BYTES))
    assert len(Modelfile.read(path).directives) == 1
    path.write_text("FROM a\n".ljust(MAX_BYTES + 1))
    assert "larger than 1,048,576 bytes" in refusal(path)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_lines_are_bounded(tmp_path: Path, end: str):
    path = tmp_path / "Modelfile"
    path.write_bytes(("FROM a" + end * 10_000).encode())
    assert len(Modelfile.read(path).directives) == 1
    path.write_bytes(("FROM a" + end * 10_001).encode())
    assert "10,001 lines" in refusal(path)


def test_importing_the_room_is_light():
    heavy = "{'mlx', 'numpy', 'tokenizers', 'jinja2', 'safetensors', 'click'}"
    code = f"import sys, modelkit.modelfile; print(sorted({heavy} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
