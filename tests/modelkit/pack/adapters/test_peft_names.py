"""Whatever files call a matrix, it is told by the name that transformers' class has for it."""

import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from modelkit.pack.adapters.peft_names import in_transformers
from modelkit.source.tensor import TensorInfo
from runtime.models import describe
from tests.runtime.models.test_published_forms import FORMS
from tests.support.checkpoints import random_state
from tests.support.parity import Reference
from tests.support.peft_folders import computed_matrices

Shapes = Mapping[str, tuple[int, ...]]

RARE = {
    "dory as published": "attention and MLP counted apart, which its class counts together",
    "gemma4 experts one by one": "a spelling from before its release",
    "Kimi K3's text alone": "the reference has the names of its wrapper",
    "Qwen4 as Qwen has it": "the reference has not the names of its wrapper",
    "gpt_neox by MLX": "names of mlx-lm's class, which no file has",
    "hunyuan 7B as published": "one matrix for queries, keys and values, and one for gates and ups",
    "longcat_flash saved": "experts without matrices have some",
    "ring_linear published": "the reference's class has a name of its own for the gate",
    "MiMo V2.5": "one matrix for queries, keys and values, which the reference has apart",
    "Sarvam 30B": "one matrix for queries, keys and values, which its class has apart",
    "molmo2 as published": "the same, and one for what passes a gate and the gate",
    "molmo2 on OLMo as published": "the same, and one for what passes a gate and the gate",
    "step3p5 by MLX": "names of mlx-lm's class, which no file of the hub has",
}


def told(config: Mapping[str, Any], shapes: Shapes) -> Shapes:
    made = {
        name: TensorInfo(name, "F32", tuple(shape), Path("x"), 0, 4 * math.prod(shape))
        for name, shape in shapes.items()
    }
    inventory: Any = SimpleNamespace(config=config, tensors=made)
    return in_transformers(inventory, writes=describe(config).writes)


def wanted(reference: Reference) -> dict[str, tuple[int, ...]]:
    """The matrices that an adapter may change, by the names of transformers 5; shapes as stored."""
    shapes = {name: tuple(shape) for name, shape in reference.record["tensors"].items()}
    return computed_matrices(describe(reference.record["config"]), shapes)


WRAPPED = ("kimi_k3", "kimi_k3_tied")
"""Names of a wrapper, and a config that is none, as mlx-lm takes it and no file has it."""


@pytest.mark.parametrize("name", [name for name in Reference.names() if name not in WRAPPED])
def test_the_names_of_transformers_stay(name: str) -> None:
    reference = Reference(name)
    found = told(reference.record["config"], reference.record["tensors"])
    for matrix, shape in wanted(reference).items():
        assert sorted(found[matrix]) == sorted(shape), matrix


@pytest.mark.parametrize("form", sorted(FORMS.keys() - RARE))
def test_published_names_are_found_again(form: str) -> None:
    name, refield, respell = FORMS[form]
    reference = Reference(name)
    state = respell(random_state(reference.record["tensors"]))
    found = told(refield(reference.record["config"]), {key: array.shape for key, array in state.items()})
    missing = wanted(reference).keys() - found.keys()
    assert not missing
