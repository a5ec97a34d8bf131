"""`modelkit doctor`: the facts of the machine, in words and in JSON."""

import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from modelkit import __version__
from runtime.cpu import native
from runtime.cpu.native import Status
from runtime.errors import ProcessLimit


def test_json_has_versions_device_blas_and_store(modelkit: Callable[..., Result], home: Path) -> None:
    facts = json.loads(modelkit("doctor", "--json").stdout)
    assert (facts["modelkit"], facts["python"]) == (__version__, platform.python_version())
    assert facts["device"]["kind"] in ("cpu", "cuda", "metal")
    assert facts["blas"]["name"]
    assert 1 <= facts["threads"]["threads"] <= facts["threads"]["most"]
    assert facts["threads"]["why"]
    assert facts["store"]["path"] == str(home / "store")
    assert facts["store"]["free_bytes"] > 0


def test_it_changes_nothing(modelkit: Callable[..., Result], home: Path) -> None:
    modelkit("doctor")
    assert not home.exists()


def test_it_says_where_nothing_can_be_written(
    modelkit: Callable[..., Result], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "nothing can be written" not in modelkit("doctor").stdout
    asked: list[Path] = []
    monkeypatch.setattr("os.access", lambda path, _: asked.append(path))
    assert "free, and nothing can be written there" in modelkit("doctor").stdout
    assert asked == [home.parent]  # the home itself is not there yet


def test_a_store_that_cannot_be_looked_at_does_not_keep_the_facts_back(
    modelkit: Callable[..., Result], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELKIT_HOME", str(home / ("x" * 300)))
    store = json.loads(modelkit("doctor", "--json").stdout)["store"]
    assert (store["size_bytes"], store["free_bytes"] > 0) == (0, True)


def test_words(modelkit: Callable[..., Result]) -> None:
    shown = modelkit("doctor").stdout
    assert all(f"  {title}\n" in shown for title in ("modelkit", "MLX", "Store", "Packages"))
    assert "BLAS" in shown
    assert "computes in" in shown


def test_it_says_which_operations_compute(
    modelkit: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = json.loads(modelkit("doctor", "--json").stdout)
    assert facts["operations"] == ("cpu" if facts["device"]["kind"] == "cpu" else "gpu")
    monkeypatch.setenv("MODELKIT_OPS", "plain")
    assert "plain: each as it is defined" in modelkit("doctor").stdout
    monkeypatch.setenv("MODELKIT_OPS", "fast")
    refused = modelkit("doctor")
    assert refused.exit_code != 0
    assert "MODELKIT_OPS is 'fast', expected one of plain, cpu, blas, gpu" in refused.stderr


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (Status("avx2", ("plain", "avx2")), ["kernels      avx2, of plain, avx2"]),
        (
            Status(None, reason="no C compiler was found", remedy="install one, then modelkit again"),
            ["kernels      none: no C compiler was found\n", "  install one, then modelkit again\n"],
        ),
        (
            Status(None, reason="MODELKIT_KERNELS=off is set"),
            ["kernels      none: MODELKIT_KERNELS=off is set\n"],
        ),
    ],
)
def test_it_says_which_kernels_compute_or_why_none_and_what_helps(
    modelkit: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, status: Status, said: list[str]
) -> None:
    monkeypatch.setattr(native, "status", status)
    shown = modelkit("doctor").stdout
    assert all(line in shown for line in said)
    kernels = json.loads(modelkit("doctor", "--json").stdout)["kernels"]
    assert (kernels["column"], kernels["reason"]) == (status.column, status.reason)


def test_it_is_an_error_where_kernels_are_required_and_none_are_there(
    modelkit: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "status", Status(None, reason="they were not built", required=True))
    refused = modelkit("doctor")
    assert refused.exit_code == 1
    assert "MODELKIT_KERNELS=required is set, and there are none: they were not built" in refused.stderr


@pytest.mark.parametrize("deep", [1, 150])
def test_a_store_that_cannot_be_read_is_one_of_the_facts(
    modelkit: Callable[..., Result], tmp_path: Path, deep: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / ("a" * deep)  # what is wrong stands behind the path
    monkeypatch.setenv("MODELKIT_HOME", str(home))
    home.write_text("no folder")
    shown = modelkit("doctor")
    assert shown.exit_code == 0
    assert "not a directory" in " ".join(shown.stdout.split())  # a table breaks lines
    facts = json.loads(modelkit("doctor", "--json").stdout)
    assert "not a directory" in facts["store"]["problem"]
    assert facts["device"]


def test_without_mlx_it_says_how_to_get_it(
    modelkit: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "runtime.device", None)
    shown = modelkit("doctor").stdout
    assert "cannot be loaded: " in shown
    assert "pip install '.[cpu]'" in shown


def test_a_limit_in_which_nothing_computes_keeps_no_facts_back(
    modelkit: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cramped() -> None:
        raise ProcessLimit("to compute takes 10 more threads")

    monkeypatch.setattr("runtime.cpu.bind_blas", cramped)
    facts = json.loads(modelkit("doctor", "--json").stdout)
    assert facts["mlx_problem"] is None
    assert facts["blas"]["reason"] == "to compute takes 10 more threads"
