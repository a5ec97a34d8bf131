"""Adapters that PEFT wrote, through a package, answer as PEFT does."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import modelkit
from modelkit.errors import SourceError
from modelkit.pack.adapters.stored import read_stored
from modelkit.store.store import Store
from runtime.cache.build import build_memory
from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from runtime.nn.adapters.adapter import Adapter
from runtime.nn.adapters.low_rank import LowRanks
from runtime.nn.adapters.rows import RowAdapters
from runtime.nn.adapters.stacks import AdapterStacks
from runtime.step import Inputs, Step
from tests.support.adapter_references import AdapterReference

NAMES = [name for folder in ("", "mlx/", "encoders/") for name in AdapterReference.names(folder)]
FUSED_ONLY = ("llama_saved", "mlx/llama_full", "gpt_oss_saved_experts")
"""Norms and stacks of experts that are whole differ for all rows of a step at once."""


def logits(model: LoadedModel, ids: np.ndarray, brought: LowRanks) -> np.ndarray:
    adapter = Adapter(model.network, brought)
    memory = build_memory(model.described.layout, dtype=model.dtype)
    memory.resize(1)
    inputs = Inputs(mx.array(ids[None].astype(np.int32)))
    rows = RowAdapters(AdapterStacks([adapter]), [((adapter, 1.0),)])
    step = Step((0,), (len(ids),), inputs=inputs, adapters=rows)
    memory.prepare(step)
    hidden = model.network(step, memory)
    return np.array((model.network.logits(hidden, step) if model.described.writes else hidden)[0])


@pytest.mark.parametrize("name", NAMES)
def test_an_adapter_of_pefts_answers_as_in_peft(name: str, tmp_path: Path) -> None:
    reference = AdapterReference(name)
    folder = reference.write_base(tmp_path / "model")
    reference.write(tmp_path / "lora")
    (tmp_path / "Modelfile").write_text("FROM ./model\nADAPTER ./lora\n", encoding="utf-8")
    if name in FUSED_ONLY:
        with pytest.raises(SourceError, match=r"\.(weight|bias) cannot differ"):
            modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)
        return
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)
    stored = read_stored(Store(tmp_path).resolve("it").files, "it")
    model = load_model(reference.base["config"], [folder / "model.safetensors"])
    got = logits(model, reference.ids, stored["lora"].load())[:, reference.answers["columns"]]
    error = np.abs(got - reference.answers["logits"]).max() / reference.answers["std"]
    # Sums in another order move a hybrid by 2e-4; a pair at a wrong place moves any model by more than 0.1.
    assert error < 1e-3, error
