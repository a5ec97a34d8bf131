"""cp, rm, prune, verify, export: the store's operations as commands."""

import errno
import json
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from modelkit.pack.mlx_lm.limits import OWN_HEAD, Limit
from modelkit.store import Name
from tests.support import gguf_llama

Run = Callable[..., Result]
Create = Callable[..., None]


@pytest.fixture
def names(modelkit: Run) -> Callable[[], list[str]]:
    return lambda: sorted(row["name"] for row in json.loads(modelkit("list", "--json").stdout))


def damage(home: Path) -> Path:
    """Change a byte of the largest blob."""
    blob = max((home / "store" / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
    blob.chmod(0o644)
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.write_bytes(data)
    return blob


def test_cp_gives_a_second_name(modelkit: Run, created: Create, names: Callable[[], list[str]]) -> None:
    created("story")
    assert modelkit("cp", "story", "a/tale:old").stdout == "copied story to a/tale:old\n"
    assert names() == ["a/tale:old", "story"]


def test_a_name_that_is_an_address_is_given_to_no_package(
    modelkit: Run, created: Create, names: Callable[[], list[str]], modelfile: Callable[..., Path]
) -> None:
    created("story")
    for line in (
        ["cp", "story", "ollama:x"],
        ["create", "ollama", "-f", str(modelfile())],
        ["create", "-f", str(modelfile(folder="Ollama"))],
        ["pull", "hf.co/amy/story", "--name", "ollama:x"],
        ["pull", "ollama.com/library/ollama:x"],
    ):
        refused = modelkit(*line)
        assert (refused.exit_code, names()) == (1, ["story"])
        assert "no package can be called 'ollama:" in refused.stderr, line


def test_a_package_that_has_such_a_name_already_is_run_and_renamed(
    modelkit: Run, created: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions gave such names, and other tools do. `hf.co/datasets/x` is no address, but a name."""
    created("story")
    monkeypatch.setattr(Name, "allowed", lambda name: name)
    for name in ("ollama:x", "hf.co/datasets/x"):
        modelkit("cp", "story", name)
        assert modelkit("run", name, "once", "-p", "num_predict=2").exit_code == 0
    monkeypatch.undo()


def test_cp_in_json_names_the_digest(modelkit: Run, created: Create) -> None:
    created("story")
    copied = json.loads(modelkit("cp", "story", "tale", "--json").stdout)
    assert copied["digest"] == json.loads(modelkit("show", "story", "--json").stdout)["digest"]


def test_cp_of_nothing_changes_nothing(
    modelkit: Run, created: Create, names: Callable[[], list[str]]
) -> None:
    created("story")
    assert modelkit("cp", "stori", "tale").exit_code == 1
    assert names() == ["story"]


def test_rm_says_what_it_freed(modelkit: Run, created: Create) -> None:
    created("story")
    modelkit("cp", "story", "tale")
    assert modelkit("rm", "story").stdout == "removed story (0 B freed)\n"
    assert modelkit("rm", "tale").stdout.startswith("removed tale (")
    assert json.loads(modelkit("list", "--json").stdout) == []


def test_rm_takes_several_names(modelkit: Run, created: Create) -> None:
    created("a")
    created("b", "SYSTEM other")
    removed = json.loads(modelkit("rm", "a", "b", "a", "--json").stdout)
    assert [one["name"] for one in removed] == ["a", "b"]
    assert removed[1]["freed_bytes"] > removed[0]["freed_bytes"] > 0


def test_rm_removes_nothing_where_one_name_is_wrong(
    modelkit: Run, created: Create, names: Callable[[], list[str]]
) -> None:
    created("story")
    assert modelkit("rm", "story", "stori").exit_code == 1
    assert names() == ["story"]


def test_prune_of_a_tidy_store(modelkit: Run, created: Create) -> None:
    created("story")
    assert modelkit("prune").stdout == "freed 0 B (0 blobs, 0 temporary files, 0 remembered conversions)\n"


def test_prune_dry_run_lists_and_keeps(modelkit: Run, created: Create, home: Path) -> None:
    created("story")
    stray = home / "store" / "blobs" / "sha256" / ("0" * 64)
    stray.write_bytes(b"1234")
    shown = modelkit("prune", "--dry-run").stdout
    assert f"blob {'0' * 12}  4 B\n" in shown
    assert "would free 4 B (1 blob," in shown
    assert stray.exists()


def test_prune_frees(modelkit: Run, created: Create, home: Path) -> None:
    created("story")
    stray = home / "store" / "blobs" / "sha256" / ("0" * 64)
    stray.write_bytes(b"1234")
    pruned = json.loads(modelkit("prune", "--json").stdout)
    assert (pruned["dry_run"], pruned["size_bytes"], len(pruned["blobs"])) == (False, 4, 1)
    assert not stray.exists()


def test_verify_of_a_sound_store(modelkit: Run, created: Create) -> None:
    created("story")
    result = modelkit("verify")
    assert result.exit_code == 0
    assert result.stdout.startswith("all is well (1 package, ")
    assert modelkit("verify", "story", "Story:latest").stdout.startswith("all is well (1 package, ")


def test_verify_finds_damage_and_who_suffers(modelkit: Run, created: Create, home: Path) -> None:
    created("story")
    blob = damage(home)
    result = modelkit("verify")
    assert result.exit_code == 1
    assert str(blob) in result.stdout
    assert "(used by story)" in result.stdout


def test_verify_in_json(modelkit: Run, created: Create, home: Path) -> None:
    created("story")
    blob = damage(home)
    result = modelkit("verify", "story", "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["ok"]) == (1, False)
    assert (report["problems"][0]["subject"], report["problems"][0]["packages"]) == (str(blob), ["story"])


def test_verify_of_an_unknown_name(modelkit: Run) -> None:
    assert modelkit("verify", "story").exit_code == 1


def test_export_makes_a_folder_of_files(modelkit: Run, created: Create, tmp_path: Path) -> None:
    created("story")
    result = modelkit("export", "story", str(tmp_path / "out"))
    assert result.exit_code == 0
    assert result.stdout.startswith(f"exported story to {tmp_path / 'out'} (")
    assert (tmp_path / "out" / "model.safetensors").stat().st_size > 300_000


def test_export_by_copy_gives_files_to_write_in(modelkit: Run, created: Create, tmp_path: Path) -> None:
    created("story")
    done = json.loads(modelkit("export", "story", str(tmp_path / "out"), "--copy", "--json").stdout)
    assert (done["linked"], done["present"]) == (0, 0)
    assert (tmp_path / "out" / "config.json").stat().st_mode & stat.S_IWUSR


def test_export_says_what_mlx_lm_computes_otherwise(
    modelkit: Run, created: Create, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Limit(("llama",), lambda block, names: "model.norm.weight" in names, "its norms are round")
    monkeypatch.setattr("modelkit.pack.mlx_lm.limits.ROWS", (said,))
    created("story")
    text = "mlx-lm 0.32.2 does not compute this llama as it is: its norms are round"
    assert f"note: {text}" in modelkit("export", "story", str(tmp_path / "out")).stderr
    report = json.loads(modelkit("export", "story", str(tmp_path / "again"), "--json").stdout)
    assert report["notes"] == [text]


def test_export_in_mlx_lms_form_says_what_it_changes(
    modelkit: Run, created: Create, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And without the form, that there is one."""
    said = Limit(("llama",), lambda block, _: block["tie_word_embeddings"], OWN_HEAD)
    monkeypatch.setattr("modelkit.pack.mlx_lm.limits.ROWS", (said,))
    created("story")
    assert "with --form mlx-lm it is written so" in modelkit("export", "story", str(tmp_path / "out")).stderr
    result = modelkit("export", "story", str(tmp_path / "again"), "--form", "mlx-lm")
    assert "for mlx-lm: the embedding is there a second time" in result.stderr
    assert OWN_HEAD not in result.stderr
    assert result.stdout.endswith("3 files written)\n")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["out", "--form", "peft"], "--form peft is for adapters"),
        (["out.gguf", "--form", "mlx-lm"], "--form is for folders"),
    ],
)
def test_export_refuses_forms_that_it_has_not(modelkit: Run, options: list[str], expected: str) -> None:
    result = modelkit("export", "story", *options)
    assert result.exit_code == 2
    assert expected in result.stderr


def test_nothing_is_exported_to_standard_output(modelkit: Run, created: Create, tmp_path: Path) -> None:
    created("story")
    for options in ([], ["--adapter", "law"], ["--draft"]):
        result = modelkit("export", "story", "-", *options)
        assert result.exit_code == 2
        assert "cannot be exported to standard output" in result.stderr


def test_export_says_what_becomes_of_blocks(modelkit: Run, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf_llama.llama(["q4_k", "q6_k"]))
    (tmp_path / "Modelfile").write_text("FROM ./m.gguf\n", encoding="utf-8")
    assert modelkit("create", "m", "-f", str(tmp_path / "Modelfile")).exit_code == 0
    result = modelkit("export", "m", str(tmp_path / "out"))
    assert result.exit_code == 0
    said = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert any(line.startswith("Q4_K 8 ") and line.endswith(" the same") for line in said)
    assert any(line.startswith("Q6_K 8 ") and line.endswith(" the nearest of 8 bits") for line in said)
    assert said[-1].endswith(", 3 files written)")
    report = json.loads(modelkit("export", "m", str(tmp_path / "again"), "--json").stdout)
    rows = {row["type"]: (row["becomes"], row["exact"], row["tensors"]) for row in report["blocks"]}
    assert rows == {"q4_k": ("q4g32", True, 8), "q6_k": ("q8g32", False, 8)}
    files = [path for path in (tmp_path / "again").rglob("*") if path.is_file()]
    assert report["size_bytes"] == sum(path.stat().st_size for path in files)
    assert (report["made"], report["notes"]) == (3, [])


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("", "DIR is empty"),
        (" ", "DIR is empty"),
        ("file", "file is a file; a folder was expected"),
        ("file/x", "file is a file; a folder was expected"),
        ("link", "link is a link to nowhere, which is not there"),
    ],
)
def test_export_says_where_no_folder_can_be(
    modelkit: Run,
    created: Create,
    tmp_path: Path,
    place: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An empty place is mostly a shell's variable that is not set: the current folder was not meant."""
    created("story")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("file").touch()
    Path("link").symlink_to("nowhere")
    before = sorted(Path().iterdir())
    result = modelkit("export", "story", place)
    assert result.exit_code != 0
    assert expected in result.stderr
    assert sorted(Path().iterdir()) == before


def test_a_slash_at_the_end_makes_a_folder_of_any_name(
    modelkit: Run, created: Create, tmp_path: Path
) -> None:
    created("story")
    assert modelkit("export", "story", f"{tmp_path}/a.gguf/").exit_code == 0
    assert (tmp_path / "a.gguf" / "config.json").exists()


def test_export_into_a_folder_with_other_files_is_refused(
    modelkit: Run, created: Create, tmp_path: Path
) -> None:
    created("story")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    result = modelkit("export", "story", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "is not empty" in result.stderr


def test_prune_takes_what_a_killed_run_left_of_a_page(modelkit: Run, created: Create, home: Path) -> None:
    created("story")
    folder = home / "cache" / "prefixes"
    folder.mkdir(parents=True)
    page = folder / f"{'a' * 16}-0-10-{'b' * 64}.safetensors"
    part = page.with_name(f"{page.name}.0123abcd.part")
    for path in (page, part):
        path.write_bytes(b"half")
    assert "would free 4 B (0 blobs, 1 temporary file," in modelkit("prune", "--dry-run").stdout
    assert part.exists()
    assert modelkit("prune").stdout.startswith("freed 4 B (0 blobs, 1 temporary file,")
    assert (part.exists(), page.exists()) == (False, True)


def test_export_writes_one_gguf_file_and_says_what_is_in_it(
    modelkit: Run, created: Create, tmp_path: Path
) -> None:
    created("story")
    target = tmp_path / "story.gguf"
    result = modelkit("export", "story", str(target))
    assert result.exit_code == 0
    assert result.stdout.startswith("TYPE")
    assert f"exported story to {target} (" in result.stdout
    again = modelkit("export", "story", str(target), "--json")
    assert again.exit_code == 1
    assert "exists already" in again.stderr
    report = json.loads(modelkit("export", "story", str(tmp_path / "b.GGUF"), "--json").stdout)
    assert report["size_bytes"] == target.stat().st_size == (tmp_path / "b.GGUF").stat().st_size
    assert sum(row["tensors"] for row in report["tensors"]) > 0


@pytest.mark.parametrize(
    "words",
    [["create", "m"], ["create", "m", "--dry-run"], ["run", "m.gguf", "w1"], ["export", "story", "out.gguf"]],
    ids=" ".join,
)
@pytest.mark.parametrize("full", [False, True], ids=["nowhere", "full"])
def test_where_no_temporary_files_can_be_written_it_is_said_what_to_do(
    modelkit: Run,
    created: Create,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    full: bool,
) -> None:
    created("story")
    (tmp_path / "m.gguf").write_bytes(gguf_llama.llama(["q4_k", "q6_k"]))
    (tmp_path / "Modelfile").write_text("FROM ./m.gguf\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    if full:
        monkeypatch.setattr(Path, "write_bytes", _on_a_full_disk)
    else:
        monkeypatch.setattr(tempfile, "tempdir", os.devnull)
    result = modelkit(*words)
    assert result.exit_code == 1
    why = "no space left on device" if full else "not a directory"
    assert f"cannot write the files of a tokenizer: {why}" in result.stderr
    assert result.stderr.endswith("Set TMPDIR to a folder that can be written to and has room for them.\n")


def _on_a_full_disk(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("place", ["out", "out.gguf"])
@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "The disk is full. Free some room, or name a place on another disk."),
        (errno.EROFS, "The file system is read-only. Name a place that can be written to."),
        (errno.EACCES, "Check who owns the folder, or name one of your own."),
    ],
)
def test_what_to_do_where_an_export_cannot_be_written_is_not_about_the_store(
    modelkit: Run,
    created: Create,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    number: int,
    advice: str,
) -> None:
    created("story")
    opened = os.open

    def refuse(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_CREAT and str(path).startswith(str(tmp_path / "there")):
            raise OSError(number, os.strerror(number), str(path))
        return opened(path, flags, *more, **named)

    (tmp_path / "there").mkdir()
    monkeypatch.setattr(os, "open", refuse)
    result = modelkit(
        "export", "story", str(tmp_path / "there" / place), *(["--copy"] if place == "out" else [])
    )
    assert result.exit_code == 1
    said, hint = result.stderr.splitlines()
    assert f": {os.strerror(number).lower()}" in said
    assert hint == f"  {advice}"


@pytest.mark.parametrize(
    ("place", "why"),
    [("nowhere/x.gguf", "there is no folder {}/nowhere"), ("file/x.gguf", "{}/file is a file; a folder was")],
)
def test_a_place_for_a_gguf_file_that_is_none_is_refused_at_once(
    modelkit: Run, created: Create, tmp_path: Path, place: str, why: str
) -> None:
    created("story")
    (tmp_path / "file").touch()
    result = modelkit("export", "story", str(tmp_path / place))
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"Error: {why.format(tmp_path)}" in result.stderr


@pytest.mark.parametrize(("target", "option"), [("out", "--draft"), ("out.gguf", "--copy")])
def test_export_refuses_an_option_of_the_other_kind(
    modelkit: Run, created: Create, tmp_path: Path, target: str, option: str
) -> None:
    created("story")
    result = modelkit("export", "story", str(tmp_path / target), option)
    assert result.exit_code == 2
    assert not (tmp_path / target).exists()
