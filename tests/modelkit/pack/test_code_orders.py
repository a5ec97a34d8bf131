"""Codes whose groups are in the order of activations (`desc_act`, `actorder: group`): packed so."""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from safetensors.numpy import load_file

import modelkit
from modelkit.errors import ModelkitError
from modelkit.pack.mlx_lm.limits import limits
from modelkit.source.safetensors import read_header
from modelkit.store.store import Store
from runtime.cpu import native
from runtime.device import device
from runtime.loading.forecast import foresee
from runtime.loading.load import begin_load
from tests.support.code_checkpoints import Codes, Tensors, compressed, gptq, random_codes
from tests.support.code_folders import (
    IDS,
    apart,
    create,
    ct_config,
    gptq_config,
    linear,
    llama,
    logits,
    stored,
    two,
)
from tests.support.drafting import always_drafting
from tests.support.parity import Reference
from tests.support.peft_folders import pair_for, peft_tensors, write_peft

Shapes = Mapping[str, tuple[int, ...]]


def shuffled(name: str, shape: tuple[int, int]) -> Codes:
    return random_codes(name, shape, 4, 32, shuffled=True)


def model(folder: Path, name: str = "llama", *, head_alone: bool = False) -> tuple[Path, Path, Shapes]:
    """Stored as `coded` and, of the same numbers as floats, `plain`. head_alone: nothing else is codes."""
    record = Reference(name).record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    shapes = dict(one for each in record["tensors"].items() for one in _apart(*each))
    layers = [] if head_alone else linear(shapes)
    chosen = [*layers, *(one for one in shapes if one == "lm_head.weight")]
    coded, plain = two(folder, config, shapes, gptq_config(desc_act=True), shuffled, gptq, chosen)
    create(coded)
    create(plain)
    return coded, plain, shapes


def _apart(name: str, shape: Any) -> list[tuple[str, tuple[int, ...]]]:
    """Experts one by one, as tools quantize them."""
    owner, _, leaf = name.rpartition(".")
    if not owner.endswith(".experts") or len(shape) != 3:
        return [(name, tuple(shape))]
    count, rows, width = shape
    parts = ("gate_proj", "up_proj") if leaf == "gate_up_proj" else (leaf,)
    return [
        (f"{owner}.{i}.{part}.weight", (rows // len(parts), width)) for i in range(count) for part in parts
    ]


CASES: dict[str, tuple[dict[str, Any], int, bool, Callable[[Codes], Tensors]]] = {
    **{f"gptq {bits}": (gptq_config(bits, desc_act=True), bits, True, gptq) for bits in (2, 3, 4, 8)},
    "gptq, zero points": (
        gptq_config(8, sym=False, desc_act=True, checkpoint_format="gptq_v2"),
        8,
        False,
        lambda one: gptq(one, version=2),
    ),
    **{
        f"rows {bits}": (
            ct_config(bits, actorder="group"),
            bits,
            True,
            lambda one: compressed(one, symmetric=True, ordered=False),
        )
        for bits in (3, 5, 6, 8)
    },
}


@pytest.mark.parametrize("name", CASES)
def test_codes_are_kept_bit_for_bit(name: str, tmp_path: Path) -> None:
    quantization, bits, symmetric, leaves = CASES[name]
    config, shapes = llama()
    coded, plain = two(
        tmp_path,
        config,
        shapes,
        quantization,
        lambda matrix, shape: random_codes(matrix, shape, bits, 32, symmetric=symmetric, shuffled=True),
        leaves,
    )
    create(coded)
    found, wanted = stored(coded), load_file(plain / "model.safetensors")
    for matrix in linear(shapes):
        module = matrix.removesuffix(".weight")
        parts = [found[f"{module}.{leaf}"].astype(mx.float32) for leaf in ("scales", "biases")]
        got = np.array(mx.dequantize(found[matrix], *parts, group_size=32, bits=bits))
        order = np.array(found[f"{module}.order"])
        np.testing.assert_array_equal(got, wanted[matrix][:, order], err_msg=matrix)


def test_a_package_with_orders_is_unpacked_to_the_same_floats(tmp_path: Path) -> None:
    """In the order in which inputs come."""
    coded, _, shapes = model(tmp_path)
    again = tmp_path / "again.modelfile"
    again.write_text(f"FROM {coded.name}:latest\n", encoding="utf-8")
    modelkit.create(again, name="again", home=tmp_path, quantize="f32")
    found, wanted = stored(tmp_path / "again"), load_file(coded.with_name("plain") / "model.safetensors")
    for matrix in linear(shapes):
        np.testing.assert_array_equal(np.array(found[matrix]), wanted[matrix], err_msg=matrix)


@pytest.mark.parametrize(
    "name", ["llama", "qwen3_moe", "gpt_neox", "gemma3_wrapped", "qwen3_5", "falcon_h1", "olmo_hybrid"]
)
def test_a_family_answers_as_with_the_same_floats(name: str, tmp_path: Path) -> None:
    coded, plain, _ = model(tmp_path, name)
    orders = [one.shape for key, one in stored(coded).items() if key.endswith(".order")]
    assert orders
    assert any(len(shape) == 2 for shape in orders) == (name == "qwen3_moe")
    answers = logits(coded)
    assert apart(answers, logits(plain)) < 2e-3
    with modelkit.load(coded, home=tmp_path) as model_:  # the folder as it is
        assert np.array_equal(model_.logits(IDS), answers)


@pytest.mark.parametrize("stays", [False, True])
def test_what_they_take_is_foreseen(stays: bool, tmp_path: Path) -> None:
    """stays: packed, as where products of packed weights are fast; else as here."""
    coded, _, _ = model(tmp_path, "qwen3_moe")
    files = Store(tmp_path).resolve(coded.name).files
    config = json.loads(files["config.json"].read_bytes())
    headers = {one.name: (one.dtype, one.shape) for one in read_header(files["model.safetensors"]).tensors}
    on = None if stays else device()
    came: list[int] = []
    loaded = begin_load(config, [files["model.safetensors"]], on=on).read(on, came.append)
    assert loaded.weight_bytes == foresee(config, headers, on=on).weight_bytes == sum(came)


@pytest.mark.skipif(native.kernels is None, reason=f"there are no kernels: {native.status.reason}")
@pytest.mark.parametrize(("name", "head_alone"), [("llama", False), ("qwen3_moe", False), ("llama", True)])
def test_answers_are_the_same_bits_in_any_company_and_with_any_draft(
    name: str, head_alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always_drafting(monkeypatch)
    coded, plain, _ = model(tmp_path, name, head_alone=head_alone)
    (tmp_path / "pair.modelfile").write_text(f"FROM {coded}\nDRAFT {plain}\n", encoding="utf-8")
    modelkit.create(tmp_path / "pair.modelfile", name="pair", home=tmp_path)
    prompts = [IDS[start:] for start in range(3)]
    said: dict[str, Any] = {"num_predict": 24, "temperature": 0}
    with modelkit.load("pair", home=tmp_path) as one:
        drafted = one.generate(prompts[0], draft_num_predict=4, **said)
        alone = [one.generate(ids, draft_num_predict=0, **said).ids for ids in prompts]
        with ThreadPoolExecutor(3) as pool:
            together = list(pool.map(lambda ids: one.generate(ids, **said).ids, prompts))
        assert np.array_equal(one.logits(IDS, chunk=1), one.logits(IDS))
        read = one.logits([*prompts[0], *alone[0]])[len(prompts[0]) - 1 : -1]
    assert read.argmax(axis=1).tolist() == [*alone[0]]
    assert drafted.usage.accepted_tokens
    assert [drafted.ids, *together] == [alone[0], *alone]


@pytest.mark.parametrize(("name", "dora"), [("llama", False), ("llama", True), ("qwen3_moe", False)])
def test_adapters_are_added_to_them_and_fused_into_them(name: str, dora: bool, tmp_path: Path) -> None:
    """Fused, a group has the inputs that it had: the codes are those of the float checkpoint with the adapter
    in it, brought into that order.
    """
    coded, plain, shapes = model(tmp_path, name)
    tensors: Tensors = {}
    for name in linear(shapes):
        tensors |= peft_tensors(name, *pair_for(name, shapes[name], 3, input_first=False))
        if dora:
            module = name.removesuffix(".weight")
            tensors[f"base_model.model.{module}.lora_magnitude_vector"] = np.full(
                shapes[name][0], 0.7, np.float32
            )
    write_peft(tmp_path / "lora", tensors, use_dora=dora)
    for folder in (coded, plain):
        recipe = tmp_path / f"with-{folder.name}.modelfile"
        Store(tmp_path).copy(folder.name, f"moved-{folder.name}")
        recipe.write_text(f"FROM moved-{folder.name}\nADAPTER ./lora\n", encoding="utf-8")
        modelkit.create(recipe, name=recipe.stem, home=tmp_path)
    assert apart(logits(tmp_path / "with-coded"), logits(tmp_path / "with-plain")) < 1e-3
    for folder in (coded, plain):
        recipe = tmp_path / f"with-{folder.name}.modelfile"
        modelkit.create(recipe, name=f"fused-{folder.name}", home=tmp_path, fuse_adapters=True)
    before, after, floats = (stored(tmp_path / one) for one in ("with-coded", "fused-coded", "fused-plain"))
    assert {one: array.shape for one, array in after.items()} == {
        one: array.shape for one, array in before.items()
    }
    changed = {one.removesuffix(".scales") for one in before if one.endswith(".scales")} - {"lm_head"}
    assert any(f"{module}.order" in before for module in changed)
    for one, array in before.items():
        module, _, leaf = one.rpartition(".")
        if module not in changed or leaf == "order":
            assert mx.array_equal(array.view(mx.uint8), after[one].view(mx.uint8)), one
    for module in changed:
        wanted = floats[f"{module}.weight"]
        if f"{module}.order" in after:
            order = after[f"{module}.order"][..., None, :]
            wanted = mx.take_along_axis(wanted, mx.broadcast_to(order, wanted.shape), axis=-1)
        parts = [after[f"{module}.{leaf}"] for leaf in ("weight", "scales", "biases")]
        codes, *_ = mx.quantize(wanted.astype(parts[1].dtype), group_size=32, bits=4)
        same = np.array(codes.view(mx.uint8)) == np.array(parts[0].view(mx.uint8))
        assert same.mean() > 0.99, (module, same.mean())
        got = mx.dequantize(parts[0], *(one.astype(mx.float32) for one in parts[1:]), group_size=32, bits=4)
        step = np.repeat(np.abs(np.array(parts[1].astype(mx.float32))), 32, axis=-1)
        assert (np.abs(np.array(got) - np.array(wanted)) <= 1.01 * step).all(), module


@pytest.mark.parametrize("desc_act", [False, True])
def test_a_checkpoint_of_codes_takes_adapters_on_its_way_to_another_format(
    desc_act: bool, tmp_path: Path
) -> None:
    config, shapes = llama()
    made = shuffled if desc_act else lambda name, shape: random_codes(name, shape, 4, 32)
    coded, plain = two(tmp_path, config, shapes, gptq_config(desc_act=desc_act), made, gptq)
    tensors: Tensors = {}
    for name in linear(shapes):
        tensors |= peft_tensors(name, *pair_for(name, shapes[name], 3, input_first=False))
    write_peft(tmp_path / "lora", tensors)
    for folder in (coded, plain):
        recipe = tmp_path / f"{folder.name}.modelfile"
        recipe.write_text(f"FROM ./{folder.name}\nADAPTER ./lora\n", encoding="utf-8")
        modelkit.create(recipe, name=recipe.stem, home=tmp_path, fuse_adapters=True, quantize="f16")
    got, wanted = (stored(tmp_path / folder.name) for folder in (coded, plain))
    assert got.keys() == wanted.keys()
    for name in linear(shapes):
        assert np.mean(np.array(got[name]) == np.array(wanted[name])) > 0.999, name  # but for ties of float32
        np.testing.assert_allclose(np.array(got[name]), np.array(wanted[name]), rtol=1e-3, err_msg=name)
    with pytest.raises(ModelkitError, match="in codes, which have to be unpacked") as refused:
        modelkit.create(tmp_path / "coded.modelfile", name="it", home=tmp_path, fuse_adapters=True)
    assert "-q q8" in str(refused.value.hint)


def test_other_programs_have_no_place_for_orders(tmp_path: Path) -> None:
    coded, _, _ = model(tmp_path)
    with pytest.raises(ModelkitError, match="a GGUF file has no place for that"):
        modelkit.export_gguf(coded.name, tmp_path / "x.gguf", home=tmp_path)
    assert any("no place for the order" in row.says for row in limits({"model_type": "llama"}, stored(coded)))


@pytest.mark.parametrize("wanted", ["f16", "q8"])
def test_they_are_unpacked_when_that_is_asked_for(wanted: str, tmp_path: Path) -> None:
    config, shapes = llama()
    coded, plain = two(tmp_path, config, shapes, gptq_config(desc_act=True), shuffled, gptq)
    create(coded, quantize=wanted)
    found, floats = stored(coded), load_file(plain / "model.safetensors")
    assert not any(name.endswith(".order") for name in found)
    for name in linear(shapes) if wanted == "f16" else ():  # as the tool has them: in the scales' own type
        np.testing.assert_array_equal(np.array(found[name]), floats[name].astype(np.float16), err_msg=name)


def test_without_the_groups_of_inputs_they_stand_as_inputs_do(tmp_path: Path) -> None:
    config, shapes = llama()

    def leaves(one: Codes) -> Tensors:
        return {leaf: array for leaf, array in gptq(one).items() if leaf != "g_idx"}

    coded, plain = two(
        tmp_path,
        config,
        shapes,
        gptq_config(desc_act=True),
        lambda name, shape: random_codes(name, shape, 4, 32),
        leaves,
    )
    create(coded)
    create(plain)
    assert apart(logits(coded), logits(plain)) < 1e-3
    assert not any(name.endswith(".order") for name in stored(coded))


def test_groups_of_other_sizes_are_refused(tmp_path: Path) -> None:
    config, shapes = llama()

    def uneven(name: str, shape: tuple[int, int]) -> Codes:
        made = shuffled(name, shape)
        made.group_of[np.flatnonzero(made.group_of == 1)[0]] = 0
        return made

    coded, _ = two(tmp_path, config, shapes, gptq_config(desc_act=True), uneven, gptq)
    with pytest.raises(ModelkitError, match="has groups of other sizes than 32"):
        create(coded)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: one * 0, "does not name each input once"),
        (lambda one: one + 4_000_000_000, "does not name each input once"),
        (lambda one: one[:-1], "takes U32"),
        (lambda one: one.astype(mx.int32), "takes U32"),
    ],
)
def test_an_order_that_is_none_is_refused(
    change: Callable[[mx.array], mx.array], said: str, tmp_path: Path
) -> None:
    coded, _, _ = model(tmp_path)
    modelkit.export(coded.name, tmp_path / "out", home=tmp_path)
    file = tmp_path / "out" / "model.safetensors"
    tensors = stored(coded)
    name = next(name for name in tensors if name.endswith(".order"))
    tensors[name] = change(tensors[name])
    file.unlink()
    mx.save_safetensors(str(file), tensors)
    with pytest.raises(ModelkitError, match=said):
        modelkit.load(tmp_path / "out", home=tmp_path).close()
