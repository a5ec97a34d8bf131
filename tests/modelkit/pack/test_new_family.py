"""A family's record is all that create and show ask: with a FAMILY and a row of names a package has its
formats, its names, its draft head apart, and a note on what is not run.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from modelkit.modelfile.quantizing import parse_format
from modelkit.pack.planning.heads import FILE, has_head, head_notes
from modelkit.pack.planning.plan import plan
from modelkit.source.inventory import Inventory
from modelkit.source.prequantized import FloatWeights
from runtime.loading.unused import unused_parts
from runtime.models import ARCHITECTURES, describe, llama
from runtime.models.family import Head
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.quantizing import SOURCE, Row
from runtime.tensors.towers import Towers

Make = Callable[..., Inventory]
CONFIG: dict[str, Any] = {
    "architectures": ["NovelForCausalLM"],
    "vocab_size": 64,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
}
SHAPE = ("BF16", (256, 256))
AT = "model.layers.0"
TENSORS = {
    f"{AT}.self_attn.q_proj.weight": SHAPE,
    f"{AT}.self_attn.w_out.weight": SHAPE,
    f"{AT}.mlp.experts.0.up_proj.weight": SHAPE,
    "ears.fc.weight": SHAPE,
    "guesser.fc.weight": SHAPE,
    f"{AT}.causal_mask": ("BF16", (1, 64)),
}
FILES = Checkpoint(
    rows=(Row(lambda t, _: t.has(".q_proj."), SOURCE, "novel queries"),),
    experts="crowd",
    renamed=((".w_out.", ".o_proj."),),
    spare=(".causal_mask",),
    towers=Towers(sound=("ears.",)),
    heads=("guesser.",),
)
HEAD = Head(layout=lambda _: [], build=lambda _: None, adapt=lambda _, weights: weights)


@pytest.fixture
def novel(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def add(**changes: Any) -> None:
        module = ModuleType("runtime.models.novel")
        vars(module)["FAMILY"] = replace(llama.FAMILY, checkpoint=always(FILES), **changes)
        monkeypatch.setitem(sys.modules, "runtime.models.novel", module)
        monkeypatch.setitem(ARCHITECTURES, "NovelForCausalLM", "novel")

    return add


def test_its_tensors_are_planned_by_its_record(inventory_of: Make, novel: Callable[..., None]) -> None:
    novel()
    made = plan(inventory_of(TENSORS, CONFIG), FloatWeights(), parse_format("q4"))
    assert {tensor.name: (tensor.label, tensor.reason) for tensor in made.tensors} == {
        f"{AT}.self_attn.q_proj.weight": ("bf16", "novel queries"),
        f"{AT}.self_attn.o_proj.weight": ("q4", "as requested"),
        f"{AT}.mlp.crowd.up_proj.weight": ("q4", "as requested"),
        "ears.fc.weight": ("bf16", "audio tower"),
        "guesser.fc.weight": ("q4", "as requested"),
    }
    assert {file.path: [tensor.name for tensor in file.tensors] for file in made.files}[FILE] == [
        "guesser.fc.weight"
    ]


def test_without_its_record_nothing_of_that_is_known(inventory_of: Make) -> None:
    made = plan(inventory_of(TENSORS, CONFIG), FloatWeights(), parse_format("q4"))
    assert {tensor.label for tensor in made.tensors if tensor.name != f"{AT}.causal_mask"} == {"q4"}
    assert not has_head(inventory_of(TENSORS, CONFIG))


def test_a_head_that_it_computes_is_told_as_one(inventory_of: Make, novel: Callable[..., None]) -> None:
    novel(head=HEAD)
    inventory = inventory_of(TENSORS, CONFIG)
    assert has_head(inventory)
    (note,) = head_notes(plan(inventory, FloatWeights(), None), draft=False)
    assert "brings a draft head of its own" in note


@pytest.mark.parametrize(("head", "said"), [(None, 2), (HEAD, 1)], ids=["no head", "head"])
def test_what_it_does_not_run_is_said(head: Head | None, said: int, novel: Callable[..., None]) -> None:
    novel(head=head)
    notes = unused_parts(describe(CONFIG), TENSORS)
    assert len(notes) == said
    assert "ears.fc.weight" in notes[-1]
