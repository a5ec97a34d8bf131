"""`modelkit cache`, and the options that fill it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from modelkit.cli.cache import tree
from modelkit.prefixes import Prefix, prefix_folder
from runtime.cache.page_folder import list_pages

Run = Callable[..., Result]
Create = Callable[..., None]

LONG = "Once upon a time there was an island in the sea." * 2
ASK = ("--cache-disk", "1GB", "-p", "temperature=0", "-p", "num_predict=3")


def said(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def filled(modelkit: Run, created: Create) -> None:
    """Packages `story` and `brief` of the same weights, and one prompt on disk."""
    created("story")
    created("brief", "SYSTEM Be brief.")
    assert modelkit("run", "story", LONG, *ASK).exit_code == 0


def test_a_prompt_is_read_once(modelkit: Run, filled: None) -> None:
    again = modelkit("run", "story", LONG, *ASK, "--verbose")
    assert f"{len(LONG)} tokens, {len(LONG) - 1} of them cached" in again.stderr
    assert said(modelkit("run", "brief", LONG, *ASK, "--json"))["usage"]["cached_tokens"] == len(LONG) - 1


def test_nothing_is_kept_unless_asked_for(modelkit: Run, created: Create, home: Path) -> None:
    created("story")
    modelkit("run", "story", LONG, "-p", "num_predict=3")
    assert not prefix_folder(home).exists()
    listed = modelkit("cache", "list")
    assert listed.stdout.splitlines()[0].split() == ["NAMES", "PAGES", "TOKENS", "SIZE", "USED"]
    assert "MODELKIT_CACHE_DISK is not set" in listed.stdout


def test_a_line_per_model_with_the_names_of_its_packages(modelkit: Run, filled: None) -> None:
    line = modelkit("cache", "list").stdout.splitlines()[1]
    assert line.startswith("brief:latest, story:latest")
    assert line.endswith("just now")


def test_the_list_in_json(modelkit: Run, filled: None, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELKIT_CACHE_DISK", "2GB")
    shown = said(modelkit("cache", "list", "--json"))
    (model,) = shown["models"]
    pages = list_pages(prefix_folder(home))
    assert model["names"] == ["brief:latest", "story:latest"]
    assert model["tokens"] == sum(page.stop - page.start for page in pages) >= len(LONG)
    assert model["size_bytes"] == shown["size_bytes"] == sum(page.nbytes for page in pages)
    assert (shown["limit_bytes"], shown["path"]) == (2 * 10**9, str(prefix_folder(home)))


def test_the_list_of_one_package(modelkit: Run, filled: None, tmp_path: Path, checkpoints: Path) -> None:
    (tmp_path / "Modelfile").write_text(f"FROM {checkpoints / 'draft'}\n")
    assert modelkit("create", "other", "-f", str(tmp_path / "Modelfile")).exit_code == 0
    assert said(modelkit("cache", "list", "other", "--json"))["models"] == []
    assert len(said(modelkit("cache", "list", "brief", "--json"))["models"]) == 1
    missing = modelkit("cache", "list", "stori")
    assert (missing.exit_code, "Did you mean story" in missing.stderr) == (1, True)


def test_weights_without_a_package_are_listed_all_the_same(modelkit: Run, filled: None) -> None:
    modelkit("rm", "story", "brief")
    assert modelkit("cache", "list").stdout.splitlines()[1].startswith("- ")


def test_the_tree_begins_with_the_text(modelkit: Run, filled: None) -> None:
    header, top, *_ = modelkit("cache", "show", "story").stdout.splitlines()
    assert header.split() == ["TOKENS", "SIZE", "HOLDS", "USED", "TEXT"]
    assert top.startswith(f"0+{len(LONG) - 1} ")
    assert "full, f32" in top
    assert top.endswith("Once upon a time")


def test_the_tree_in_json(modelkit: Run, filled: None) -> None:
    top, *below = said(modelkit("cache", "show", "story", "--json"))
    assert (top["depth"], top["start"], top["kinds"], top["kv_format"]) == (1, 0, ["full"], "f32")
    assert top["text"] == LONG[:-1]
    assert all(node["depth"] > 1 for node in below)


def test_a_package_without_prompts(modelkit: Run, created: Create) -> None:
    created("story")
    assert modelkit("cache", "show", "story").stdout == "nothing is cached on disk for story\n"


def test_clearing_says_what_was_freed(modelkit: Run, filled: None, home: Path) -> None:
    pages = list_pages(prefix_folder(home))
    freed = said(modelkit("cache", "clear", "story", "--json"))
    assert freed == {"pages": len(pages), "freed_bytes": sum(page.nbytes for page in pages)}
    assert list_pages(prefix_folder(home)) == []
    assert modelkit("cache", "clear").stdout == "freed 0 B (0 pages)\n"


def test_clearing_one_package_spares_other_weights(
    modelkit: Run, filled: None, tmp_path: Path, checkpoints: Path
) -> None:
    (tmp_path / "Modelfile").write_text(f"FROM {checkpoints / 'draft'}\n")
    assert modelkit("create", "other", "-f", str(tmp_path / "Modelfile")).exit_code == 0
    modelkit("run", "other", LONG, *ASK)
    modelkit("cache", "clear", "story")
    (model,) = said(modelkit("cache", "list", "--json"))["models"]
    assert model["names"] == ["other:latest"]


def test_prune_leaves_prompts_alone(modelkit: Run, filled: None, home: Path) -> None:
    before = list_pages(prefix_folder(home))
    assert modelkit("prune").exit_code == 0
    assert list_pages(prefix_folder(home)) == before


@pytest.mark.parametrize("option", ["--cache-memory", "--cache-disk"])
def test_a_bad_size_names_its_option(option: str, modelkit: Run, created: Create) -> None:
    created("story")
    result = modelkit("run", "story", "Hi", option, "lots")
    assert result.exit_code == 2
    assert f"'{option}'" in result.stderr
    assert "2GB" in result.stderr


def test_a_full_disk_is_a_note(modelkit: Run, created: Create, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    created("story")
    monkeypatch.setattr("runtime.cache.disk_pages.write_page", full)
    result = modelkit("run", "story", LONG, *ASK)
    assert result.exit_code == 0
    assert result.stderr.count("note: prefixes are not written to ") == 1
    assert "No space left on device" in result.stderr


def test_cache_memory_takes_the_place_of_the_environment(
    modelkit: Run, created: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    created("story")
    monkeypatch.setenv("MODELKIT_CACHE_MEMORY", "lots")
    assert "MODELKIT_CACHE_MEMORY is 'lots'" in modelkit("run", "story", "Hi").stderr
    monkeypatch.setenv("MODELKIT_CACHE_MEMORY", "0")
    asked = ("run", "story", "Hi", "-p", "num_predict=2", "--verbose")
    assert "may cache" not in modelkit(*asked).stderr
    assert "may cache up to 1.5 MB of prompts" in modelkit(*asked, "--cache-memory", "1.5MB").stderr


def test_the_outlook_comes_before_the_weights(
    modelkit: Run, created: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    created("story")

    def fails(*_: object, **__: object) -> None:
        raise OSError("the weights cannot be read")

    monkeypatch.setattr("runtime.loading.load.Loading.read", fails)
    result = modelkit("run", "story", "Hi", "--verbose")
    assert result.exit_code == 1
    assert "tokens of context" in result.stderr


def test_a_tree_without_a_tokenizer_has_ids() -> None:
    nodes = [
        Prefix(1, 0, 3, 1500, 0.0, ids=(5, 6, 7), resumable=True, users=2),
        Prefix(2, 3, 4, 10, 0.0, ids=(8,)),
    ]
    _, top, below = tree(nodes, None).splitlines()
    assert "1.5 kB  resumable, used by 2" in top
    assert top.endswith("5 6 7")
    assert below.startswith("3+1 ")  # an only child stays where its parent is


def test_text_in_the_tree_cannot_take_the_terminal_over() -> None:
    shown = tree([Prefix(1, 0, 3, 1, 0.0, ids=(1,))], lambda _: "\x1b[2Ja\nb")
    assert "\x1b" not in shown
    assert shown.endswith("[2Ja\\nb")
