"""What the surroundings decide."""

from pathlib import Path

import pytest

from modelkit.errors import ModelkitError, ParameterError
from modelkit.modelfile.quantizing import parse_quantizing
from modelkit.settings import Settings, settings_at
from modelkit.source.adapters.reading import adapter_name


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
        with pytest.raises(ModelkitError, match="the current folder no longer exists"):
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
