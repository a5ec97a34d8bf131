"""An architecture that only mlx-lm has: refused by name without it, and said so with it."""

import importlib
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import modelkit
from modelkit.cli.main import cli
from modelkit.errors import LoadError, PlanError
from modelkit.pack.families import find_family
from runtime.models import foreign
from tests.support.checkpoints import write_checkpoint
from tests.support.tiny import write_model, write_tokenizer

with_mlx_lm = pytest.mark.skipif(find_spec("mlx_lm") is None, reason="mlx-lm is not installed")

NOVEL = {"architectures": ["NovelForCausalLM"], "model_type": "novel"}
CONFIG: dict[str, Any] = {
    "architectures": ["KlearMoeForCausalLM"],
    "model_type": "Klear",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "attention_bias": False,
    "mlp_only_layers": [0],
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "n_shared_experts": 1,
    "moe_intermediate_size": 64,
    "rms_norm_eps": 1e-5,
    "vocab_size": 320,
    "num_key_value_heads": 2,
    "rope_theta": 10000.0,
    "max_position_embeddings": 256,
    "norm_topk_prob": True,
}


@pytest.fixture
def modelfile(tmp_path: Path) -> Path:
    path = tmp_path / "Modelfile"
    path.write_text("FROM ./model\n", encoding="utf-8")
    return path


def test_create_refuses_an_unknown_architecture_by_name(
    modelfile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "installed", lambda: None)
    write_model(modelfile.parent / "model", **NOVEL)
    with pytest.raises(PlanError, match=r"'NovelForCausalLM'.*modelkit-mlx\[lm\]"):
        modelkit.create(modelfile, name="it", home=modelfile.parent)


def test_load_refuses_an_unknown_architecture_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "installed", lambda: None)
    folder = write_model(tmp_path / "model", **NOVEL)
    with pytest.raises(LoadError, match=r"'NovelForCausalLM'.*modelkit-mlx\[lm\]"):
        modelkit.load(folder, home=tmp_path)


def test_expert_stacks_are_called_as_the_class_calls_them() -> None:
    assert find_family(CONFIG).experts == "experts"


def test_doctor_says_whether_the_extra_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELKIT_HOME", str(tmp_path))
    shown = CliRunner().invoke(cli, ["doctor"]).output
    (line,) = [line for line in shown.splitlines() if "mlx-lm" in line]
    assert (foreign.installed() or "the extra `lm` brings it") in line


@pytest.fixture
def checkpoint(modelfile: Path) -> Path:
    """As published: one tensor for each expert."""
    shapes: dict[str, tuple[int, ...]] = {}
    file = importlib.import_module("mlx_lm.models.Klear")
    from mlx.utils import tree_flatten

    for name, array in tree_flatten(file.Model(file.ModelArgs.from_dict(CONFIG)).parameters()):
        if ".mlp.experts." in name:
            before, matrix = name.split(".experts.")
            shapes |= {f"{before}.experts.{i}.{matrix}": array.shape[1:] for i in range(array.shape[0])}
        else:
            shapes[name] = array.shape
    folder = write_checkpoint(modelfile.parent / "model", CONFIG, shapes)
    write_tokenizer(folder)
    return folder


@with_mlx_lm
@pytest.mark.filterwarnings("ignore")  # of its imports
def test_from_modelfile_to_text(checkpoint: Path, modelfile: Path) -> None:
    home = modelfile.parent
    ids = [*range(1, 10)]
    with modelkit.load(checkpoint, home=home) as model:
        wanted = model.logits(ids)
        assert any("model class of mlx-lm" in note for note in model.notes)
    created = modelkit.create(modelfile, name="it", quantize="q8", home=home)
    assert any("model class of mlx-lm" in note for note in created.notes)
    with modelkit.load("it", home=home) as model:
        assert np.abs(model.logits(ids) - wanted).mean() < 0.1 * wanted.std()
        first, second = (model.generate(ids, num_predict=6, seed=1).ids for _ in range(2))
        assert len(first) == 6
        assert first == second


@with_mlx_lm
@pytest.mark.filterwarnings("ignore")
def test_show_says_what_runs_it(checkpoint: Path, modelfile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELKIT_HOME", str(modelfile.parent))
    modelkit.create(modelfile, name="it", home=modelfile.parent)
    facts = json.loads(CliRunner().invoke(cli, ["show", "it", "--json"]).output)
    assert facts["through"] == f"mlx-lm {foreign.installed()} (Klear)"
    assert facts["problem"] is None
    assert "(Klear)" in CliRunner().invoke(cli, ["show", "it"]).output
