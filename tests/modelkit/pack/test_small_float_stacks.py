"""The newest families as published in small floats: stacks of experts, and matrices; codes are kept."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelkit
from modelkit.errors import MalformedFile, ModelkitError, UnsupportedSource
from tests.modelkit.pack.test_small_floats import coded_of
from tests.modelkit.source.files import Specs
from tests.runtime.models.test_published_forms import FORMS
from tests.support.checkpoints import random_state
from tests.support.code_folders import IDS, apart, create, logits, stored
from tests.support.parity import Reference
from tests.support.published_states import State, each_alone, hy_v4_by_tencent, inkling2_published, same
from tests.support.small_floats import two, two_of_stacks

Config = dict[str, Any]
KindOf = Callable[[str], tuple[str, str] | None]


def always(kind: str, form: str) -> KindOf:
    return lambda name: (kind, form) if ".experts." in name and "norm" not in name else None


def in_layers(kinds: tuple[str, ...]) -> KindOf:
    """Of Inkling 2 Mini: some in NVFP4, others in MXFP8."""

    def found(name: str) -> tuple[str, str] | None:
        return (kinds[int(name.split(".")[3]) % len(kinds)], "Inkling 2") if ".experts." in name else None

    return found


def widened(config: Config) -> Config:
    wide = {key: 64 for key in ("moe_intermediate_size", "moe_hidden_size") if key in config}
    inner = {key: widened(config[key]) for key in ("text_config",) if key in config}
    return {**config, **wide, **inner}


def wide(name: str, shape: list[int]) -> tuple[int, ...]:
    if name.endswith(".experts.gate_up_proj"):
        return (shape[0], 128, 64)
    return tuple(64 if size in (32, 48) and "expert" in name else size for size in shape)


@dataclass(frozen=True)
class Case:
    name: str
    """Of its reference."""
    refield: Callable[[Config], Config]
    respell: Callable[[State], State]
    said: Config | None
    kind_of: KindOf
    kinds: tuple[str, ...]
    """Of stacks, as kept."""


MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
MXFP8 = {"quant_method": "mxfp8", "weight_block_size": [1, 32], "scale_fmt": "ue8m0"}
CASES = {
    "Inkling": Case(*FORMS["Inkling"], MODELOPT, always("nvfp4", "Inkling"), ("nvfp4",)),
    "Inkling, named nowhere": Case(*FORMS["Inkling"], None, always("nvfp4", "Inkling"), ("nvfp4",)),
    "Inkling 2": Case(
        "inkling2_text", same, inkling2_published, MXFP8, always("mxfp8", "Inkling 2"), ("mxfp8",)
    ),
    "Inkling 2 Mini": Case(*FORMS["Inkling 2 Mini"], None, in_layers(("nvfp4", "mxfp8")), ("mxfp8", "nvfp4")),
    "Muse Spark": Case("muse_spark", same, same, MODELOPT, always("nvfp4", "ModelOpt"), ("nvfp4",)),
    "Hunyuan V4": Case("hy_v4", same, hy_v4_by_tencent, MXFP8, always("mxfp8", "Inkling 2"), ("mxfp8",)),
}


def folders(case: Case, folder: Path) -> tuple[Path, Path]:
    record = Reference(case.name).record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    state = random_state({name: wide(name, shape) for name, shape in record["tensors"].items()})
    told = case.refield(widened(config))
    return two_of_stacks(folder, told, case.respell(state), case.said, case.kind_of)


def plain_logits(folder: Path) -> np.ndarray:
    with modelkit.load(folder) as model:
        return model.logits(IDS)


@pytest.mark.parametrize("name", CASES)
def test_stacks_keep_their_codes(name: str, tmp_path: Path) -> None:
    coded, plain = folders(CASES[name], tmp_path)
    made, wanted = create(coded), plain_logits(plain)
    stacks = [row for row in made.preparation.target.plan.tensors if ".switch_mlp." in row.name]
    assert {row.label for row in stacks if len(row.shape) == 3} == {*CASES[name].kinds}
    assert all(row.exact is not False for row in stacks)
    assert apart(logits(coded), wanted) < 2e-3
    assert np.array_equal(plain_logits(coded), logits(coded))
    create(coded, quantize="f32")
    assert np.array_equal(logits(coded), wanted)


def test_the_bytes_are_the_files(tmp_path: Path) -> None:
    coded, _ = folders(CASES["Hunyuan V4"], tmp_path)
    create(coded)
    theirs, kept = (coded / "model.safetensors").read_bytes(), stored(coded)
    for leaf in ("weight", "scales"):
        assert np.array(kept[f"model.layers.1.mlp.switch_mlp.down_proj.{leaf}"]).tobytes() in theirs
        assert np.array(kept[f"model.layers.1.mlp.switch_mlp.up_proj.{leaf}"][2]).tobytes() in theirs


@pytest.mark.parametrize(
    ("name", "refield", "respell"),
    [FORMS["minimax_m3 as published"], ("hy_v4", same, lambda state: hy_v4_by_tencent(each_alone(state)))],
)
def test_matrices_keep_their_codes(
    name: str, refield: Callable[[Config], Config], respell: Callable[[State], State], tmp_path: Path
) -> None:
    """MiniMax M3, and Hunyuan V4 with its experts one by one."""
    record = Reference(name).record
    config = refield({key: value for key, value in record["config"].items() if key != "eos_token_id"})
    coded, plain = two(tmp_path, config, record["tensors"], "mxfp8", "mxfp8", respell, 32)
    made, wanted = create(coded), plain_logits(plain)
    stacks = [row for row in made.preparation.target.plan.tensors if ".switch_mlp." in row.name]
    assert {row.label for row in stacks} == {"mxfp8"}
    assert apart(logits(coded), wanted) < 2e-3
    create(coded, quantize="f32")
    assert np.array_equal(logits(coded), wanted)


STACK = "model.layers.0.mlp.experts.w2_weight"


@pytest.mark.parametrize(
    ("leaves", "error", "said"),
    [
        ({"_amax": ("F32", (4,))}, MalformedFile, "has no `.*_outer_scale_denominator`"),
        ({".scale2": ("F32", (3,))}, MalformedFile, "or one or two for each of 4"),
        ({".scale2": ("I32", (4,))}, MalformedFile, "one F32 beside nvfp4"),
    ],
)
def test_factors_that_fit_no_stack_are_refused(
    leaves: Specs, error: type[ModelkitError], said: str, tmp_path: Path
) -> None:
    tensors: Specs = {STACK: ("U8", (4, 8, 32)), f"{STACK}.scale": ("F8_E4M3", (4, 8, 4))}
    tensors |= {STACK + leaf: kind for leaf, kind in leaves.items()}
    with pytest.raises(error, match=said):
        coded_of(tmp_path, tensors, "modelopt")


def test_stacks_with_inputs_first_are_refused(tmp_path: Path) -> None:
    """As ModelOpt writes those of Llama 4."""
    name = "model.layers.0.feed_forward.experts.down_proj"
    tensors: Specs = {name: ("U8", (4, 32, 8)), f"{name}_weight_scale": ("F8_E4M3", (4, 4, 8))}
    with pytest.raises(UnsupportedSource, match="inputs first"):
        coded_of(tmp_path, tensors, "modelopt")


def test_packed_stacks_of_compressed_tensors_are_known_by_their_own_name(tmp_path: Path) -> None:
    tensors: Specs = {
        f"{STACK}.weight_packed": ("U8", (4, 8, 32)),
        f"{STACK}.weight_scale": ("F8_E4M3", (4, 8, 4)),
        f"{STACK}.weight_global_scale": ("F32", (4, 1)),
        f"{STACK}.input_global_scale": ("F32", (4, 1)),
    }
    matrix = coded_of(tmp_path, tensors, "compressed-tensors").matrices[STACK]
    assert (matrix.layout, matrix.shape, matrix.factored) == ("nvfp4", (4, 8, 64), True)
