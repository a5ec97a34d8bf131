"""Prompts kept on disk: read once by several loads, shared by packages of the same weights, bounded."""

import logging
from pathlib import Path

import pytest

import modelkit
from modelkit.prefixes import disk_tree, model_digest, pages_by_model, prefix_folder
from modelkit.store import Package, Store
from runtime.cache.page_folder import list_pages
from tests.support.tiny import TEMPLATE, write_model

LONG = "Once upon a time there was an island in the sea, and on it lived a fox. " * 3
GB = 10**9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("prefixes") / "model", max_position_embeddings=1024)


def packed(home: Path, folder: Path, name: str, *lines: str) -> Package:
    home.mkdir(exist_ok=True)
    (home / "Modelfile").write_text("\n".join([f"FROM {folder}", *lines]) + "\n")
    modelkit.create(home / "Modelfile", name=name, home=home)
    return Store(home).resolve(name)


def read(name: str | Path, home: Path, prompt: str = LONG, **options: object) -> tuple[tuple[int, ...], int]:
    """The answer's ids, and how many prompt tokens were not computed for it."""
    with modelkit.load(name, home=home, **{"cache_disk": GB, **options}) as model:
        answer = model.generate(prompt, raw=True, temperature=0, num_predict=6)
    return answer.ids, answer.usage.cached_tokens


def test_a_second_load_reads_a_prompt_from_disk(tmp_path: Path, folder: Path) -> None:
    packed(tmp_path, folder, "story")
    first, again = read("story", tmp_path), read("story", tmp_path)
    assert (first[1], again[1]) == (0, len(LONG) - 1)
    assert again[0] == first[0]


def test_it_is_off_unless_asked_for(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed(tmp_path, folder, "story")
    read("story", tmp_path, cache_disk=0)
    assert not prefix_folder(tmp_path).exists()
    monkeypatch.setenv("MODELKIT_CACHE_DISK", "1GB")
    read("story", tmp_path, cache_disk=None)
    assert list_pages(prefix_folder(tmp_path))


def test_what_other_operations_have_left_is_computed_again(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last bits are others, as they are without kernels."""
    packed(tmp_path, folder, "story")
    monkeypatch.setenv("MODELKIT_OPS", "plain")
    read("story", tmp_path)
    monkeypatch.delenv("MODELKIT_OPS")
    assert read("story", tmp_path)[1] == 0


def test_packages_of_the_same_weights_share(tmp_path: Path, folder: Path) -> None:
    one = packed(tmp_path, folder, "story")
    other = packed(tmp_path, folder, "brief", "SYSTEM Be brief.", f"TEMPLATE {TEMPLATE}")
    assert model_digest(one.manifest) == model_digest(other.manifest)
    read("story", tmp_path)
    assert read("brief", tmp_path)[1] == len(LONG) - 1


def test_other_weights_share_nothing(tmp_path: Path, folder: Path) -> None:
    packed(tmp_path, folder, "story")
    read("story", tmp_path)
    packed(tmp_path, write_model(tmp_path / "other", seed=5, max_position_embeddings=1024), "other")
    assert read("other", tmp_path)[1] == 0
    assert len(pages_by_model(tmp_path)) == 2


def test_another_format_of_keys_and_values_is_kept_apart(tmp_path: Path, folder: Path) -> None:
    packed(tmp_path, folder, "story")
    read("story", tmp_path)
    first, again = (read("story", tmp_path, kv_format="q8") for _ in range(2))
    assert (first[1], again[1]) == (0, len(LONG) - 1)
    assert first[0] == again[0]


def test_a_folder_has_no_digest_and_says_so(tmp_path: Path, folder: Path) -> None:
    with modelkit.load(folder, home=tmp_path, cache_disk=GB) as model:
        assert any("not kept on disk" in note and "a package has" in note for note in model.notes)
    with modelkit.load(folder, home=tmp_path) as model:
        assert not any("disk" in note for note in model.notes)


def test_without_memory_nothing_is_kept_on_disk_and_that_is_said(tmp_path: Path, folder: Path) -> None:
    packed(tmp_path, folder, "story")
    with modelkit.load("story", home=tmp_path, cache_disk=GB, cache_memory=0) as model:
        assert any("the cache memory is 0" in note for note in model.notes)
        assert model.prefixes() == []


def test_a_folder_that_cannot_be_made_is_a_note(tmp_path: Path, folder: Path) -> None:
    packed(tmp_path, folder, "story")
    (tmp_path / "cache").write_text("in the way")
    with modelkit.load("story", home=tmp_path, cache_disk=GB) as model:
        assert any("not kept on disk" in note for note in model.notes)
        assert model.generate("Once", raw=True, num_predict=2).ids


def test_a_full_disk_costs_no_answer(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    packed(tmp_path, folder, "story")
    monkeypatch.setattr("runtime.cache.disk_pages.write_page", full)
    with caplog.at_level(logging.WARNING):
        assert len(read("story", tmp_path)[0]) == 6
    assert "No space left on device" in caplog.text


def test_all_models_together_stay_within_the_limit(tmp_path: Path, folder: Path) -> None:
    packed(tmp_path, folder, "story")
    packed(tmp_path, write_model(tmp_path / "other", seed=5, max_position_embeddings=1024), "other")
    read("story", tmp_path)
    one = sum(page.nbytes for page in list_pages(prefix_folder(tmp_path)))
    read("other", tmp_path, cache_disk=one + 1000)
    assert 0 < sum(page.nbytes for page in list_pages(prefix_folder(tmp_path))) <= one + 1000
    assert read("other", tmp_path)[1] > 0


def test_the_tree_on_disk(tmp_path: Path, folder: Path) -> None:
    package = packed(tmp_path, folder, "story")
    ends = ("", "It was red.", "It was blue.")
    for end in ends:
        read("story", tmp_path, LONG + end)
    top, *below = disk_tree(tmp_path, package)
    assert (top.depth, top.start, top.kinds, top.kv_format) == (1, 0, ("full",), "f32")
    assert sum(node.start == top.stop and node.depth == 2 for node in below) == len(ends)
    assert all(len(node.ids) == node.tokens for node in (top, *below))
    assert Store(tmp_path).resolve("story").digest == package.digest


def test_pages_that_cannot_be_read_are_left_out_of_the_tree(tmp_path: Path, folder: Path) -> None:
    package = packed(tmp_path, folder, "story")
    read("story", tmp_path)
    tree = disk_tree(tmp_path, package)
    page = min(list_pages(prefix_folder(tmp_path)), key=lambda page: page.start)
    page.path.write_bytes(b"x" * 20)
    left = disk_tree(tmp_path, package)
    assert len(left) == len(tree) - 1
    assert all(node.depth == 1 for node in left[:1])


def test_what_a_loaded_model_holds(folder: Path, tmp_path: Path) -> None:
    with modelkit.load(folder, home=tmp_path) as model:
        model.generate("Once upon", raw=True, temperature=0, num_predict=4)
        (node,) = model.prefixes()
        assert (node.depth, node.start, node.resumable) == (1, 0, True)
        assert model.decode(node.ids).startswith("Once upon")
        assert 0 < node.size_bytes <= model.memory.prefix_bytes
