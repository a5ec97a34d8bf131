"""Checkpoints of codes that are damaged, or stored in a way that is not read: refused by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelkit.errors import ModelkitError
from modelkit.store.store import Store
from tests.support.checkpoints import random_state
from tests.support.code_checkpoints import Codes, Tensors, as_codes, awq, compressed, gptq, random_codes
from tests.support.code_folders import (
    Config,
    auto_round_config,
    awq_config,
    create,
    ct_config,
    gptq_config,
    linear,
    llama,
    write,
)

Changed = Callable[[Config, Tensors], None]


def _set(**fields: Any) -> Changed:
    return lambda config, _: config.update(fields)


def _tensor(leaf: str, change: Callable[[np.ndarray], np.ndarray | None]) -> Changed:
    def apply(_: Config, tensors: Tensors) -> None:
        name = next(one for one in sorted(tensors) if one.endswith(leaf))
        made = change(tensors.pop(name))
        if made is not None:
            tensors[name] = made

    return apply


def _both(*changes: Changed) -> Changed:
    def apply(config: Config, tensors: Tensors) -> None:
        for change in changes:
            change(config, tensors)

    return apply


def _nan(scales: np.ndarray) -> np.ndarray:
    scales = scales.copy()
    scales[0, 3] = np.nan
    return scales


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set(bits=5), "bits is 5; 2, 3, 4, 8 are read"),
        (_set(bits=True), "bits is True"),
        (_set(group_size=0), "group_size is 0"),
        (_set(group_size="128"), "group_size is '128'"),
        (_set(group_size=48), "in groups of 48 takes"),
        (_set(group_size=16), "groups of 16"),
        (_set(checkpoint_format="marlin"), "checkpoint_format is 'marlin'"),
        (_set(is_marlin_format=True), "is_marlin_format is True"),
        (_set(dynamic={"+:.*down.*": {"bits": 5}}), "bits is 5"),
        (_set(dynamic={"+:.*down.*": {"hadamard": True}}), "dynamic is"),
        (_set(dynamic={"+:.*down.*": {"sym": False}}), "any of several ways"),
        (_set(pack_dtype="int16"), "pack_dtype is 'int16'"),
        (_set(quant_method="hqq"), "is quantized with HQQ (`"),
        (_tensor(".scales", lambda _: None), "has no"),
        (_tensor(".qweight", lambda one: one[:-1]), "in groups of 32 takes"),
        (_tensor(".qweight", lambda one: one.reshape(1, *one.shape)), "takes"),
        (_tensor(".qzeros", lambda one: one[:, :-1]), "takes I32"),
        (_tensor(".g_idx", lambda one: one[:-1]), "takes I32"),
        (_tensor(".g_idx", lambda one: one[::-1].copy()), "in another order than config.json says"),
        (
            _both(_set(desc_act=True, static_groups=True), _tensor(".g_idx", lambda one: one[::-1].copy())),
            "in another order than config.json says (desc_act and static_groups",
        ),
        (_tensor(".g_idx", lambda one: one + 99), "names groups beyond"),
        (_tensor(".scales", _nan), "NaN or infinite"),
        (_tensor(".scales", lambda one: one.astype(np.float64)), "is F64"),
        (_tensor(".qzeros", lambda one: one + 1), "zero points other than 8"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change: Changed, said: str, tmp_path: Path) -> None:
    config, shapes = llama()
    quantization = gptq_config()
    coded, _ = as_codes(
        random_state(shapes), linear(shapes), lambda name, shape: random_codes(name, shape, 4, 32), gptq
    )
    change(quantization, coded)
    folder = write(tmp_path / "coded", {**config, "quantization_config": quantization}, coded)
    with pytest.raises(ModelkitError) as caught:
        create(folder)
    assert said in str(caught.value)
    assert not Store(tmp_path).packages()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (auto_round_config("auto_round:fp8_static"), "packing_format is 'auto_round:fp8_static'"),
        (auto_round_config(bits=6), "bits is 6; 2, 3, 4, 8 is what is read"),
        (auto_round_config("auto_round:auto_awq", bits=2), "bits is 2; 4 is what is read"),
        (auto_round_config(data_type="mx_fp"), "data_type is 'mx_fp'"),
        (auto_round_config(rotation_config={"algorithm": "hadamard"}), "rotation_config is"),
        (awq_config(version="gemv"), "version is 'gemv'; gemm is read"),
        (awq_config(bits=8), "bits is 8; 4 is read"),
        ({**ct_config(), "transform_config": {"a": 1}}, "transform_config is"),
        ({**ct_config(), "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config.format is"),
        ({**ct_config(), "config_groups": {}}, "does not say how its weights are packed"),
        (ct_config(type="float"), "does not say how its weights are packed"),
        (ct_config(7), "num_bits is 7"),
        (ct_config(8), "which is not 8 bits in groups of 32"),
        (ct_config(4, 64), "which is not 4 bits in groups of 64"),
        (ct_config(symmetric=False), "which is not 4 bits"),
    ],
)
def test_other_ways_are_refused_by_name(config: Config, said: str, tmp_path: Path) -> None:
    own, shapes = llama()
    method = config["quant_method"]
    by_columns: dict[str, Callable[[Codes], Tensors]] = {"awq": awq, "auto-round": gptq}
    leaves = by_columns.get(method, lambda one: compressed(one, symmetric=True))
    coded, _ = as_codes(
        random_state(shapes), linear(shapes), lambda name, shape: random_codes(name, shape, 4, 32), leaves
    )
    folder = write(tmp_path / "coded", {**own, "quantization_config": config}, coded)
    with pytest.raises(ModelkitError) as caught:
        create(folder)
    assert said in str(caught.value)


def test_a_matrix_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    own, shapes = llama()
    coded, plain = as_codes(
        random_state(shapes), linear(shapes), lambda name, shape: random_codes(name, shape, 4, 32), gptq
    )
    name = linear(shapes)[0]
    folder = write(
        tmp_path / "coded", {**own, "quantization_config": gptq_config()}, {**coded, name: plain[name]}
    )
    with pytest.raises(ModelkitError, match="there as codes and as floats"):
        create(folder)
