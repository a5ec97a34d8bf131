"""A stored model runs on its files where they lie in the store; whatever may change is read."""

from pathlib import Path

import pytest

import modelkit
from runtime import device
from runtime.nn.operations import ops
from tests.support.tiny import write_model

if not device.device().as_stored:
    pytest.skip("nothing is mapped without kernels", allow_module_level=True)

ASKED = {"raw": True, "num_predict": 8, "temperature": 0}


def maps(folder: Path) -> list[str]:
    """Files of a folder that this process has mapped."""
    with open("/proc/self/maps") as lines:
        return sorted({line.split()[-1] for line in lines if str(folder) in line})


def create(folder: Path, *, seed: int = 0, more: str = "", **options: object) -> None:
    write_model(folder / "source", seed=seed, hidden_size=128)
    (folder / "Modelfile").write_text(f"FROM {folder / 'source'}\n{more}")
    modelkit.create(folder / "Modelfile", name="m", home=folder / "home", **options)  # pyright: ignore[reportArgumentType]


def answer(model: modelkit.Model) -> list[int]:
    return model.generate("Hello", **ASKED).ids  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("quantize", [None, "q4", "bf16"])
def test_a_package_is_mapped_until_it_is_closed(tmp_path: Path, quantize: str | None) -> None:
    if quantize == "bf16" and not ops.by_kernels("linear", "embed"):
        pytest.skip("16-bit matrices become float32 here")
    create(tmp_path, quantize=quantize)
    with modelkit.load(str(tmp_path / "source")) as model:
        read = answer(model)
        assert maps(tmp_path) == []
    with modelkit.load("m", home=tmp_path / "home") as model:
        assert len(maps(tmp_path / "home/store/blobs")) == 1
        assert quantize or answer(model) == read
        assert model.memory.weight_bytes < 1.1 * sum(path.stat().st_size for path in weights(tmp_path))
    assert maps(tmp_path) == []
    with pytest.raises(modelkit.errors.ModelkitError):
        model.generate("Hello", raw=True)


def weights(folder: Path) -> list[Path]:
    return sorted((folder / "home/store/blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)[-1:]


def test_a_model_goes_on_when_its_name_is_created_again_or_removed(tmp_path: Path) -> None:
    create(tmp_path)
    with modelkit.load("m", home=tmp_path / "home") as model:
        before = answer(model)
        create(tmp_path, seed=1)
        modelkit.remove("m", home=tmp_path / "home")
        assert weights(tmp_path) == []
        assert answer(model) == before


def test_a_draft_is_mapped_too(tmp_path: Path) -> None:
    write_model(tmp_path / "draft", hidden_size=64)
    create(tmp_path, more=f"DRAFT {tmp_path / 'draft'}\n")
    with modelkit.load("m", home=tmp_path / "home") as model:
        assert len(maps(tmp_path / "home/store/blobs")) == 2
        drafted = answer(model)
    with modelkit.load("m", home=tmp_path / "home", draft_num_predict=0) as model:
        assert len(maps(tmp_path / "home/store/blobs")) == 1
        assert answer(model) == drafted


def test_without_kernels_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(tmp_path)
    with modelkit.load("m", home=tmp_path / "home") as model:
        wanted = answer(model)
    monkeypatch.setenv("MODELKIT_OPS", "blas")
    with modelkit.load("m", home=tmp_path / "home") as model:
        assert maps(tmp_path) == []
        assert answer(model) == wanted
    monkeypatch.setenv("MODELKIT_OPS", "cpu")
    modelkit.load("m", home=tmp_path / "home").close()
