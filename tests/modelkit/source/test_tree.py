import os
import socket
from pathlib import Path

import pytest

from modelkit.errors import SourceError, UnsupportedSource
from modelkit.source import tree
from modelkit.source.tree import is_safe_relative, open_regular, read_directory, read_single_file, subtree
from runtime.quoting import shown
from tests.modelkit.source.files import WEIGHTS, safetensors, write_source


@pytest.mark.parametrize("name", ["config.json", "draft/config.json", "a b.txt", "語.json", "..a", "x" * 255])
def test_plain_relative_names_are_safe(name: str) -> None:
    assert is_safe_relative(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/../b",
        "a/./b",
        "a//b",
        "a/",
        "/etc/passwd",
        "C:\\x",
        "C:x",
        "a\\b",
        "a\0b",
        "a\nb",
        "a\u202eb",
        "\ud800",
        "x" * 256,
        "a/" + "語" * 86,
    ],
)
def test_names_that_could_lead_elsewhere_are_not_safe(name: str) -> None:
    assert not is_safe_relative(name)


def test_a_folder_gives_its_files_in_name_order(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).write_text("")
    (tmp_path / "onnx").mkdir()
    assert list(read_directory(tmp_path).items()) == [("a", tmp_path / "a"), ("b", tmp_path / "b")]


def test_links_are_followed_as_hub_caches_need(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "0123").write_text("weights")
    snapshot = tmp_path / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to("../../blobs/0123")
    assert read_directory(snapshot)["model.safetensors"].read_text() == "weights"


def test_a_link_to_nowhere_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("../blobs/gone")
    with pytest.raises(SourceError, match=r"links to ../blobs/gone, which does not exist"):
        read_directory(tmp_path)


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("a")
    with pytest.raises(SourceError, match=r"cannot read .*/a: "):
        read_directory(tmp_path)


def test_a_fifo_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="neither a file nor a folder"):
        read_directory(tmp_path)


def test_a_link_to_a_device_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("/dev/zero")
    with pytest.raises(SourceError, match="neither a file nor a folder"):
        read_directory(tmp_path)


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        with pytest.raises(SourceError, match="neither a file nor a folder"):
            read_directory(tmp_path)


def test_an_absent_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"cannot read the folder .*absent: no such file"):
        read_directory(tmp_path / "absent")


def test_a_folder_of_too_many_entries_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MAX_FILES", 3)
    for number in range(4):
        (tmp_path / str(number)).write_text("")
    with pytest.raises(SourceError, match="more than 3 entries"):
        read_directory(tmp_path)


def test_a_path_with_nul_is_an_error_of_ours() -> None:
    with pytest.raises(SourceError, match="cannot read it"):
        open_regular(Path("a\0b"), "it")


def test_a_single_file_is_the_model_with_what_lies_beside_it(tmp_path: Path) -> None:
    write_source(tmp_path)
    (tmp_path / "fine-tune.safetensors").write_bytes(safetensors(WEIGHTS))
    files = read_single_file(tmp_path / "fine-tune.safetensors")
    assert files["model.safetensors"] == tmp_path / "fine-tune.safetensors"
    assert sorted(files) == ["config.json", "model.safetensors", "tokenizer.json"]


def test_a_single_file_without_config_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(safetensors(WEIGHTS))
    with pytest.raises(SourceError, match=r"no config.json beside it"):
        read_single_file(tmp_path / "m.safetensors")


def test_one_shard_of_several_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedSource, match="one shard of 3") as caught:
        read_single_file(tmp_path / "model-00001-of-00003.safetensors")
    assert f"FROM {tmp_path}" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("m.gguf", "GGUF"),
        ("m.bin", "Python pickles"),
        ("ggml-m-q4_0.bin", "GGML"),
        ("m.ggmlv3.q4_0.bin", "GGML"),
        ("m.md", "else"),
        ("m.Q8_0.gguf.part1of2", "parts of a GGUF file"),
        ("m.Q8_0.gguf-split-a", "parts of a GGUF file"),
    ],
)
def test_a_single_file_of_another_kind_is_named(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UnsupportedSource, match=kind):
        read_single_file(tmp_path / name)


def test_an_absent_single_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        read_single_file(tmp_path / "model.safetensors")


def test_a_subtree_has_the_names_inside_it() -> None:
    files = {"config.json": Path("1"), "draft/config.json": Path("2"), "drafts/x": Path("3")}
    assert subtree(files, "draft") == {"config.json": Path("2")}


def test_shown_text_has_no_control_characters_and_an_end() -> None:
    assert shown("a\x1b[2J\u202e\ud800") == r"a\x1b[2J\u202e\ud800"
    assert shown("x" * 500) == "x" * 120 + "… (500 characters)"
