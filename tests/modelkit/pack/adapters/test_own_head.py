"""Fusing what tells head and embedding apart where a checkpoint has one matrix for both."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import modelkit
from modelkit.errors import ModelkitError
from modelkit.source.adapters.reading import read_adapter
from modelkit.store.store import Store
from runtime.models import Described, describe
from tests.support import gguf_llama
from tests.support.checkpoints import random_state, random_tensor, write_checkpoint
from tests.support.gguf import Gguf
from tests.support.kinds import variants_later
from tests.support.parity import Reference, described
from tests.support.peft_folders import is_table, matrices, pair_for, peft_tensors, write_peft
from tests.support.tiny import write_tokenizer

IDS = list(range(3, 20))
ALSO_READ = {"t5": 0, "mt5": 0, "umt5": 0, "t5gemma": 2}
"""Families with an encoder: the id that their answers begin with."""


def tied(name: str) -> bool:
    return described(name).writes and bool(getattr(described(name).config, "tied", False))


ALWAYS = ("t5gemma2", "zamba", "zamba_biases", "zamba2", "zamba2_plain")
TIED = [name for name in Reference.names() if tied(name) and name not in ALWAYS]


class Base:
    """A checkpoint whose head is its embedding, in `model`, and an adapter in `lora`."""

    def __init__(self, name: str, folder: Path) -> None:
        record = Reference(name).record
        self.name, self.folder = name, folder
        self.config: dict[str, Any] = _without_end_ids(record["config"])
        self.shapes: dict[str, Any] = record["tensors"]
        self.described: Described = describe(self.config)
        self.size = self.described.vocab_size, self.described.hidden_size
        found = matrices(self.shapes)
        self.table = next(one for one in found if is_table(one) and tuple(found[one]) == self.size)
        write_tokenizer(write_checkpoint(folder / "model", self.config, self.shapes), tokens=128)
        self.recipe("FROM ./model\nADAPTER ./lora\n")

    def recipe(self, text: str) -> None:
        (self.folder / "Modelfile").write_text(text, encoding="utf-8")

    def write(self, matrix: str, **config: Any) -> None:
        """An adapter with a pair for that matrix."""
        left, right = pair_for(matrix, self.size, 3, input_first=False)
        write_peft(self.folder / "lora", peft_tensors(matrix, left, right), **config)

    def create(self, name: str, *, fuse: bool = False, **options: Any) -> Any:
        return modelkit.create(
            self.folder / "Modelfile", name=name, home=self.folder, fuse_adapters=fuse, **options
        )

    def logits(self, name: str) -> np.ndarray:
        with modelkit.load(name, home=self.folder) as model:
            if self.name in ALSO_READ:
                return model.logits([ALSO_READ[self.name], *IDS], source=IDS)
            return model.logits(IDS)

    def tensors(self, name: str) -> dict[str, np.ndarray]:
        return load_file(Store(self.folder).resolve(name).files["model.safetensors"])


def _without_end_ids(config: dict[str, Any]) -> dict[str, Any]:
    """They are beyond the small vocabulary."""
    kept = {key: value for key, value in config.items() if key != "eos_token_id"}
    return {key: _without_end_ids(value) if key == "text_config" else value for key, value in kept.items()}


def apart(got: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(got - wanted).max() / wanted.std())


@pytest.mark.parametrize("name", variants_later(TIED))
def test_a_fused_embedding_leaves_the_head(name: str, tmp_path: Path) -> None:
    base = Base(name, tmp_path)
    base.write(base.table)
    made = base.create("it", fuse=True)
    assert any("the head is stored besides" in note for note in made.notes)
    base.create("beside")
    assert apart(base.logits("it"), base.logits("beside")) < 1e-4


@pytest.mark.parametrize("name", ["llama_biases_tied", "gpt_neox_sequential", "t5", "gemma3_wrapped"])
@pytest.mark.parametrize("whole", [False, True])
def test_a_fused_head_leaves_the_embedding(name: str, whole: bool, tmp_path: Path) -> None:
    base = Base(name, tmp_path)
    if whole:
        tensors = {"base_model.model.lm_head.weight": random_tensor("head", base.size)}
        write_peft(tmp_path / "lora", tensors, modules_to_save=["lm_head"])
    else:
        base.write("lm_head.weight")
    base.create("it", fuse=True)
    base.create("beside")
    assert apart(base.logits("it"), base.logits("beside")) < 1e-4
    assert np.array_equal(base.tensors("it")[base.table], base.tensors("beside")[base.table])


@pytest.mark.parametrize("same", [False, True])
def test_a_head_and_a_table_that_should_be_one_count_apart_where_they_differ(
    same: bool, tmp_path: Path
) -> None:
    base = Base("llama_biases_tied", tmp_path)
    table = random_tensor("table", base.size)
    head = table if same else random_tensor("head", base.size)
    tensors = {f"base_model.model.{base.table}": table, "base_model.model.lm_head.weight": head}
    tied = {"modules_to_save": ["lm_head", "embed_tokens"], "ensure_weight_tying": True}
    write_peft(tmp_path / "lora", tensors, **tied)
    made = base.create("it", fuse=True)
    beside = base.create("beside")
    for notes in (made.notes, beside.notes):
        assert any("lm_head.weight differs from model.embed_tokens" in note for note in notes) is not same
    assert apart(base.logits("it"), base.logits("beside")) < 1e-4
    fused = base.tensors("it")
    assert np.array_equal(fused.get("lm_head.weight", fused[base.table]), head)
    assert ("lm_head.weight" in fused) is not same


@pytest.mark.parametrize("name", ["llama_biases_tied", "gemma3_wrapped"])
def test_a_packed_table_is_packed_twice(name: str, tmp_path: Path) -> None:
    base = Base(name, tmp_path)
    base.write(base.table)
    base.recipe("FROM ./model\n")
    base.create("packed", quantize="q8g32")
    base.recipe("FROM packed\nADAPTER ./lora\n")
    base.create("it", fuse=True)
    base.create("beside")
    before, beside, fused = (base.logits(one) for one in ("packed", "beside", "it"))
    assert np.abs(fused - beside).mean() < 0.1 * np.abs(beside - before).mean()
    module, stored, packed = base.table.removesuffix(".weight"), base.tensors("it"), base.tensors("packed")
    (head,) = (name.removesuffix(".weight") for name in stored.keys() - packed.keys() if "weight" in name)
    for leaf in ("weight", "scales", "biases"):
        ours, theirs = stored[f"{head}.{leaf}"], packed[f"{module}.{leaf}"]
        assert ours.tobytes() == theirs.tobytes(), "nothing changes the head"


def test_quantized_behind_it_both_are_packed(tmp_path: Path) -> None:
    base = Base("llama_biases_tied", tmp_path)
    base.write(base.table)
    base.create("it", fuse=True, quantize="q8g32")
    assert {"lm_head.scales", "model.embed_tokens.scales"} <= base.tensors("it").keys()


@pytest.mark.parametrize("same", [False, True])
def test_a_copy_of_the_table_is_not_taken_for_a_head_of_its_own(same: bool, tmp_path: Path) -> None:
    """Once the table is changed, a copy beside it is not a copy any more."""
    base = Base("llama_biases_tied", tmp_path)
    state = random_state(base.shapes)
    state["lm_head.weight"] = state[base.table].copy()
    save_file(state, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    base.write(base.table, ensure_weight_tying=same)
    base.create("it", fuse=True)
    base.create("beside")
    assert ("lm_head.weight" in base.tensors("it")) == (not same)
    base.recipe("FROM it\n")
    base.create("again")
    assert apart(base.logits("it"), base.logits("beside")) < 1e-4
    assert np.array_equal(base.logits("again"), base.logits("it"))


@pytest.mark.parametrize(
    ("targets", "both"),
    [
        (r".*\.(wte|c_fc)", False),
        (r"(?:.*\.mlp\..*|^model\.embed_tokens$)|lm_head", True),
        ("all-linear", False),
    ],
)
def test_a_pattern_names_what_peft_ties(targets: str, both: bool, tmp_path: Path) -> None:
    """As PEFT asks it: does the pattern match `embed_tokens` or `lm_head`, whatever the table is called?"""
    tensors = {"base_model.model.transformer.wte.lora_embedding_A": np.ones((3, 128), np.float32)}
    tensors["base_model.model.transformer.wte.lora_embedding_B"] = np.ones((32, 3), np.float32)
    write_peft(tmp_path / "lora", tensors, target_modules=targets, ensure_weight_tying=True)
    assert read_adapter(tmp_path / "lora").unties is not both


def test_two_adapters_of_which_one_tells_them_apart(tmp_path: Path) -> None:
    base = Base("qwen2", tmp_path)
    base.write(base.table, ensure_weight_tying=True)
    (tmp_path / "lora").rename(tmp_path / "both")
    base.write("lm_head.weight")
    base.recipe("FROM ./model\nADAPTER ./both\nADAPTER ./lora\n")
    base.create("it", fuse=True)
    base.create("beside")
    with modelkit.load("beside", home=tmp_path) as model:
        wanted = model.logits(IDS, adapters=["both", "lora"])
    assert apart(base.logits("it"), wanted) < 1e-4


def test_an_architecture_that_ties_them_says_so(tmp_path: Path) -> None:
    base = Base(ALWAYS[0], tmp_path)
    base.write(base.table)
    with pytest.raises(ModelkitError, match="one matrix for both") as caught:
        base.create("it", fuse=True)
    assert "Leave --fuse-adapters out" in str(caught.value)


def test_the_config_says_what_the_weights_are(tmp_path: Path) -> None:
    base = Base("llama_biases_tied", tmp_path)
    base.write(base.table)
    base.create("it", fuse=True)
    config = json.loads(Store(tmp_path).resolve("it").files["config.json"].read_bytes())
    assert config["tie_word_embeddings"] is False


@pytest.mark.parametrize("matrix", ["lm_head.weight", "model.embed_tokens.weight"])
def test_a_table_in_blocks_of_gguf_is_refused_by_name(matrix: str, tmp_path: Path) -> None:
    tied = [tensor for tensor in gguf_llama.tensors(["q4_k"]) if tensor.name != "output.weight"]
    (tmp_path / "m.gguf").write_bytes(bytes(Gguf(gguf_llama.metadata(), tied)))
    (tmp_path / "Modelfile").write_text("FROM ./m.gguf\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="packed", home=tmp_path)
    left, right = pair_for(matrix, (gguf_llama.VOCABULARY, gguf_llama.HIDDEN), 3, input_first=False)
    write_peft(tmp_path / "lora", peft_tensors(matrix, left, right))
    (tmp_path / "Modelfile").write_text("FROM packed\nADAPTER ./lora\n", encoding="utf-8")
    with pytest.raises(ModelkitError, match=f"keeps {matrix} in GGUF's blocks"):
        modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path, fuse_adapters=True)
