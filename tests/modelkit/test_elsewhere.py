"""Names as other programs write them: what is said, and that a model in huggingface_hub's cache is found."""

from pathlib import Path

import pytest

import modelkit
from modelkit.elsewhere import where_to_get
from modelkit.errors import ModelNotFound, SourceError
from modelkit.settings import hub_cache


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.mark.parametrize(
    "text",
    [
        "Qwen/Qwen3-8B",
        "hf.co/Qwen/Qwen3-8B",
        "hf.co/Qwen/Qwen3-8B:Q4_K_M",
        "huggingface.co/Qwen/Qwen3-8B",
        "https://huggingface.co/Qwen/Qwen3-8B",
        "https://huggingface.co/Qwen/Qwen3-8B/tree/main?x=1",
        "hf://Qwen/Qwen3-8B",
        "hf:Qwen/Qwen3-8B",
    ],
)
def test_a_model_of_the_hub_is_got_with_hf_download(text: str) -> None:
    said = where_to_get(text)
    assert said is not None
    assert "hf download Qwen/Qwen3-8B --local-dir Qwen3-8B\n" in said


def test_a_name_of_ollamas_library() -> None:
    assert "Names of Ollama's library" in (where_to_get("llama3.2:1b") or "")


def test_another_address_is_not_guessed_at() -> None:
    said = where_to_get("https://example.org/model.zip") or ""
    assert "Nothing is downloaded" in said
    assert "hf download" not in said


@pytest.mark.parametrize("text", ["story", "qwen3", "a/b/c", "", "bad name", "../x/y"])
def test_names_that_could_be_ours_are_left_to_the_store(text: str) -> None:
    assert where_to_get(text) is None


def _snapshot(cache: Path, revision: str) -> Path:
    folder = cache / "models--Qwen--Qwen3-8B" / "snapshots" / revision
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def test_a_model_in_the_cache_is_named_by_its_folder(cache: Path) -> None:
    folder = _snapshot(cache, "abc")
    assert str(folder) in (where_to_get("Qwen/Qwen3-8B") or "")


def test_a_snapshot_that_was_not_finished_does_not_count(cache: Path) -> None:
    (_snapshot(cache, "abc") / "config.json").unlink()
    assert "hf download" in (where_to_get("Qwen/Qwen3-8B") or "")


def test_the_folder_of_all_versions_points_to_the_newest(cache: Path) -> None:
    folder = _snapshot(cache, "abc")
    with pytest.raises(SourceError) as caught:
        modelkit.load(folder.parents[1])
    assert caught.value.hint == f"Name the newest: {folder}"


def test_load_and_create_both_say_it(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="hf download Qwen/Qwen3-8B"):
        modelkit.load("Qwen/Qwen3-8B", home=tmp_path)
    (tmp_path / "Modelfile").write_text("FROM Qwen/Qwen3-8B\n")
    with pytest.raises(ModelNotFound, match=r"Modelfile:1:1: .*\n.*hf download Qwen/Qwen3-8B"):
        modelkit.create(tmp_path / "Modelfile", home=tmp_path)


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HOME": "/home/amy"}, "/home/amy/.cache/huggingface/hub"),
        ({"HOME": "/home/amy", "XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({"HF_HOME": "/hf"}, "/hf/hub"),
        ({"HF_HOME": "/hf", "HF_HUB_CACHE": "/cache"}, "/cache"),
    ],
)
def test_where_the_cache_is(environment: dict[str, str], folder: str) -> None:
    assert hub_cache(environment) == Path(folder)
