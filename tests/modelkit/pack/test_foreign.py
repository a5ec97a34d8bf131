"""An architecture that only mlx-lm has: refused by name without it, and said so with it."""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import modelkit
from modelkit.cli.main import cli
from modelkit.errors import LoadError, PlanError
from runtime.models import foreign
from tests.support.checkpoints import write_checkpoint
from tests.support.foreign_references import ForeignReference
from tests.support.tiny import write_model, write_tokenizer

with_mlx_lm = pytest.mark.skipif(find_spec("mlx_lm") is None, reason="mlx-lm is not installed")

UNHEARD = {"architectures": ["NovelForCausalLM"], "model_type": "novel"}
VOCAB = 320  # of the tokenizer
_TABLE = re.compile(r"embed_tokens|lm_head|wte")


@pytest.fixture
def modelfile(tmp_path: Path) -> Path:
    path = tmp_path / "Modelfile"
    path.write_text("FROM ./model\n", encoding="utf-8")
    return path


def _checkpoint(folder: Path, name: str) -> Path:
    """As published, with a vocabulary of the tokenizer's size."""
    record = ForeignReference(name).record
    small = record["config"]["vocab_size"]
    shapes = {
        tensor: tuple(VOCAB if _TABLE.search(tensor) and size == small else size for size in shape)
        for tensor, shape in record["tensors"].items()
    }
    write_checkpoint(folder, {**record["config"], "vocab_size": VOCAB}, shapes)
    write_tokenizer(folder)
    return folder


@pytest.mark.parametrize("config", [UNHEARD, {**UNHEARD, "model_type": "exaone"}])
def test_create_and_load_refuse_an_unknown_architecture_by_name(modelfile: Path, config: Any) -> None:
    folder = write_model(modelfile.parent / "model", **config)
    with pytest.raises(PlanError, match="'NovelForCausalLM' is not supported"):
        modelkit.create(modelfile, name="it", home=modelfile.parent)
    with pytest.raises(LoadError, match="'NovelForCausalLM' is not supported"):
        modelkit.load(folder, home=modelfile.parent)


def test_without_the_extra_a_known_class_is_refused_with_its_name(
    modelfile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "installed", lambda: None)
    _checkpoint(modelfile.parent / "model", "dbrx")
    with pytest.raises(PlanError, match=r"'DbrxForCausalLM'.*pip install .mlx-lm"):
        modelkit.create(modelfile, name="it", home=modelfile.parent)


def test_doctor_says_whether_the_extra_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELKIT_HOME", str(tmp_path))
    shown = CliRunner().invoke(cli, ["doctor"]).output
    (line,) = [line for line in shown.splitlines() if "mlx-lm" in line]
    assert (foreign.installed() or "the extra `lm` brings it") in line


@with_mlx_lm
@pytest.mark.parametrize("name", ForeignReference.names())
def test_from_modelfile_to_text(name: str, modelfile: Path) -> None:
    home = modelfile.parent
    ids = [*range(1, 10)]
    with modelkit.load(_checkpoint(home / "model", name), home=home) as model:
        wanted = model.logits(ids)
        assert any("model class of mlx-lm" in note for note in model.notes)
    created = modelkit.create(modelfile, name="it", quantize="q8", home=home)
    assert any("model class of mlx-lm" in note for note in created.notes)
    with modelkit.load("it", home=home) as model:
        assert np.abs(model.logits(ids) - wanted).mean() < 0.1 * wanted.std()
        first, second = (model.generate(ids, num_predict=6, seed=1).ids for _ in range(2))
        assert first
        assert first == second


@with_mlx_lm
def test_show_says_what_runs_it(modelfile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELKIT_HOME", str(modelfile.parent))
    _checkpoint(modelfile.parent / "model", "dbrx")
    modelkit.create(modelfile, name="it", home=modelfile.parent)
    facts = json.loads(CliRunner().invoke(cli, ["show", "it", "--json"]).output)
    assert facts["through"] == f"mlx-lm {foreign.installed()} (dbrx)"
    assert facts["problem"] is None
    assert "(dbrx)" in CliRunner().invoke(cli, ["show", "it"]).output


@with_mlx_lm
def test_create_refuses_what_the_class_would_pass_over(modelfile: Path) -> None:
    folder = _checkpoint(modelfile.parent / "model", "dbrx")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}), encoding="utf-8")
    with pytest.raises(PlanError, match="tie_word_embeddings is True"):
        modelkit.create(modelfile, name="it", home=modelfile.parent)
