"""What the surroundings decide, and sizes as people write them."""

from pathlib import Path

import numpy as np
import pytest

from modelkit.errors import ModelkitError, ParameterError
from modelkit.modelfile.quantizing import parse_quantizing
from modelkit.settings import Settings, check_launched, launched, one_of_several, read_size, settings_at
from modelkit.source.adapters.opened import adapter_name


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("2GB", 2 * 10**9),
        ("500 mb", 500 * 10**6),
        ("1.5G", 15 * 10**8),
        ("1.5GiB", 3 << 29),
        ("64k", 64_000),
        ("123", 123),
        ("1.001kB", 1001),
        ("0.468665MB", 468_665),
        ("5.7265 GiB", 57265 * (1 << 30) // 10_000),
        ("0", 0),
        (7, 7),
        (np.int64(7), 7),
    ],
)
def test_sizes(text: str | int, nbytes: int) -> None:
    assert read_size(text, "x") == nbytes


@pytest.mark.parametrize(
    "value", ["", "lots", "-1", "1e9", "2 G B", "GB", "9" * 16, -1, True, np.True_, 2**63]
)
def test_what_is_no_size_names_its_source(value: str | int) -> None:
    with pytest.raises(ParameterError, match=r"--cache-memory is .*expected a number of bytes"):
        read_size(value, "--cache-memory")


def test_the_disk_is_off_unless_it_is_asked_for() -> None:
    settings = Settings.from_environment({"MODELKIT_HOME": "/x"})
    assert (settings.home, settings.cache_memory_bytes, settings.cache_disk_bytes) == (Path("/x"), None, 0)


def test_limits_come_from_the_environment() -> None:
    settings = Settings.from_environment({"MODELKIT_CACHE_MEMORY": "0", "MODELKIT_CACHE_DISK": "10GB"})
    assert (settings.cache_memory_bytes, settings.cache_disk_bytes) == (0, 10**10)


def test_a_current_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert settings_at("/there").home == Path("/there")
    for asked in (
        lambda: settings_at("store"),
        lambda: Settings.from_environment({"MODELKIT_HOME": "store"}),
        lambda: parse_quantizing("4.5 bits from chat.txt"),
        lambda: adapter_name(Path("law")),
    ):
        with pytest.raises(ModelkitError, match="the current folder is gone"):
            asked()


def test_operations_are_those_of_the_device_unless_a_column_is_named() -> None:
    assert Settings.from_environment({"MODELKIT_OPS": " "}).operations is None
    assert Settings.from_environment({"MODELKIT_OPS": "Plain"}).operations == "plain"
    with pytest.raises(ParameterError, match="MODELKIT_OPS is 'fast', expected one of plain, cpu, blas, gpu"):
        Settings.from_environment({"MODELKIT_OPS": "fast"})


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("MODELKIT_KERNELS", ("off", "Required", " avx2 ", ""), "requird"),
        ("MODELKIT_KERNELS_ACTIVATIONS", ("i16", "f32", ""), "f16"),
    ],
)
def test_words_on_kernels_are_known(name: str, right: tuple[str, ...], wrong: str) -> None:
    for word in right:
        Settings.from_environment({name: word})
    with pytest.raises(ParameterError, match=f"{name} is '{wrong}', expected one of"):
        Settings.from_environment({name: wrong})


@pytest.mark.parametrize("name", ["MODELKIT_CACHE_MEMORY", "MODELKIT_CACHE_DISK"])
def test_a_bad_limit_names_its_variable(name: str) -> None:
    with pytest.raises(ModelkitError, match=name):
        Settings.from_environment({name: "many"})


@pytest.mark.parametrize(
    ("given", "several"),
    [
        ({}, False),
        ({"MLX_RANK": "0"}, True),
        ({"MLX_RANK": "0", "MLX_HOSTFILE": "two.json"}, True),
        ({"MLX_RANK": "0", "MLX_HOSTFILE": "blank.json"}, False),
        ({"MLX_RANK": "0", "MLX_HOSTFILE": "none.json"}, True),
        ({"MLX_RANK": "0", "MLX_HOSTFILE": "one.json"}, False),
        ({"MLX_RANK": "0", "MLX_WORLD_SIZE": "1"}, False),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, True),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, False),
    ],
)
def test_a_launcher_of_one_process_starts_none_of_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], *, several: bool
) -> None:
    """Of one machine `mlx.launch` writes no addresses; it holds the input of that, too."""
    monkeypatch.chdir(tmp_path)
    Path("two.json").write_text('[["127.0.0.1:5000"], ["127.0.0.1:5001"]]')
    Path("blank.json").write_text("\n")
    Path("one.json").write_text('[["127.0.0.1:5000"]]')
    assert one_of_several(given) == several
    assert launched(given) == bool(given)


@pytest.mark.parametrize("rank", ["-1", "2", "99999999999", "one", "", "1.0", "\u0660"])
def test_a_rank_that_mlx_would_misread(tmp_path: Path, rank: str) -> None:
    """-1 ended the process with a bus error, and a word was rank 0."""
    hosts = tmp_path / "hosts.json"
    hosts.write_text('[["127.0.0.1:5000"], ["127.0.0.1:5001"]]')
    check_launched({"MLX_RANK": "1", "MLX_HOSTFILE": str(hosts)})
    with pytest.raises(ParameterError, match=f"MLX_RANK is '{rank}', expected one of the 2 ranks of"):
        check_launched({"MLX_RANK": rank, "MLX_HOSTFILE": str(hosts)})


def test_a_rank_of_another_backend() -> None:
    check_launched({})
    check_launched({"MLX_RANK": "3"})
    with pytest.raises(ParameterError, match="MLX_RANK is '-1', expected a whole number"):
        check_launched({"MLX_RANK": "-1"})


@pytest.mark.parametrize("text", ["[]", "null", '{"a": 1}', "[[1], [2]]", '["127.0.0.1:5000", "b:1"]', "[["])
def test_addresses_that_mlx_would_misread(tmp_path: Path, text: str) -> None:
    """Of an empty list it divided by zero."""
    hosts = tmp_path / "hosts.json"
    hosts.write_text(text)
    given = {"MLX_RANK": "0", "MLX_HOSTFILE": str(hosts)}
    with pytest.raises(ParameterError, match="expected a list of addresses for each rank"):
        check_launched(given)
    assert one_of_several(given)
    hosts.unlink()
    with pytest.raises(ParameterError, match="cannot be read: no such file"):
        check_launched(given)
