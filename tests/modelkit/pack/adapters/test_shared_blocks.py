"""Adapters on blocks that several layers run: one for all of these, or refused."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from modelkit.errors import UnsupportedSource
from modelkit.pack.adapters.place import place
from modelkit.source.adapters.reading import read_adapter
from runtime.models import describe
from tests.support.adapter_references import AdapterReference

SHARED = "base_model.model.model.layers.4.shared_transformer.self_attn.q_proj.lora_B.weight"


@pytest.mark.parametrize("change", ["other numbers", "one layer alone", "another scale"])
def test_what_is_not_the_same_for_all_layers_is_refused(change: str, tmp_path: Path) -> None:
    reference = AdapterReference("zamba2_shared")
    reference.write(tmp_path)
    described = describe(reference.base["config"])
    shapes = {name: array.shape for name, array in reference.base_state().items()}
    assert place(read_adapter(tmp_path), described, shapes).placed
    path = tmp_path / "adapter_model.safetensors"
    tensors = load_file(path)
    if change == "other numbers":
        tensors[SHARED] = tensors[SHARED] + np.float32(1)
    elif change == "one layer alone":
        tensors = {name: array for name, array in tensors.items() if ".4.shared" not in name}
    else:
        config = tmp_path / "adapter_config.json"
        said = config.read_text(encoding="utf-8")
        pattern = '"alpha_pattern": {"layers.4.shared_transformer.self_attn.q_proj": 3}'
        assert '"alpha_pattern": {}' in said
        config.write_text(said.replace('"alpha_pattern": {}', pattern), encoding="utf-8")
    save_file(tensors, path)
    with pytest.raises(UnsupportedSource, match="layers 1, 4 run one block") as caught:
        place(read_adapter(tmp_path), described, shapes)
    assert "without shared_transformer" in (caught.value.hint or "")
