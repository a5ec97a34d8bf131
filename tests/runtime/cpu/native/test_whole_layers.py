"""Layers of real families as few nodes have the bits of the same layers in parts, in every column."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.build import build_memory
from runtime.cpu import native

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

from runtime.cpu.composed import Composed
from runtime.cpu.native import layers as native_layers
from runtime.loaded import LoadedModel
from runtime.nn.adapters.adapter import Adapter
from runtime.nn.adapters.low_rank import LowRanks
from runtime.nn.adapters.rows import RowAdapters
from runtime.nn.adapters.stacks import AdapterStacks
from runtime.nn.operations import ops
from runtime.nn.residual import sublayer
from runtime.step import Inputs, Step
from tests.runtime.cpu.native.rows import computing
from tests.support.low_ranks import pairs_of
from tests.support.parity import Reference
from tests.support.same_bits import Batch, Carried, nothing

FAMILIES = {
    "gemma4_text": 1,
    "gemma4_unified": 1,
    "gemma4_keys_as_values": 1,
    "gemma4_moe": 1,
    "ministral3": 1,
    "hunyuan_biases": 1,
    "laguna": 1,
    "laguna_by_number": 1,
    "lfm3": 1,
    "lfm3_plain": 1,
    "muse_glimmer": 1,
    "mimo_v2_flash": 1,
    "mellum": 1,
    "afmoe": 1,
    "phimoe": 1,
    "deepseek_v2": 1,
    "deepseek_v3": 1,
    "glm4_moe_lite": 1,
    "youtu": 1,
    "minicpm3": 1,
    "minicpm3_biases": 1,
    "mistral4": 1,
    "mamba": 1,
    "falcon_mamba": 1,
    "jamba": 1,
    "gpt2": 1,
    "gpt_bigcode": 1,
    "gpt_bigcode_heads": 1,
    "gptj": 1,
    "codegen": 1,
    "gpt_neo": 1,
    "opt": 1,
    "gpt_neox": 1,
    "gpt_neox_sequential": 1,
    "falcon_7b": 1,
    "falcon_11b": 1,
    "cohere": 1,
    "cohere_biases": 1,
    "llama4": 1,
    "llama4_text": 1,
    "falcon_h1": 1,
    "falcon_h1_norm": 1,
    "falcon_h1_norm_first": 1,
    "apertus": 1,
    "apertus_biases": 1,
    "arcee": 1,
    "jais2": 1,
    "olmo": 1,
    "cwm": 1,
    "helium": 1,
    "hyperclovax": 1,
    "glm": 1,
    "hunyuan_moe": 1,
    "flex_olmo": 1,
    "vaultgemma": 1,
    "granite_swa": 1,
    "granitemoe_swa": 1,
    "hy_v3": 1,
    "nanochat": 1,
    "nanochat_biases": 1,
    "persimmon": 1,
    "persimmon_plain": 1,
    "xglm": 1,
    "gemma3n": 1,
    "recurrent_gemma": 1,
    "kimi_linear": 1,
    "zamba2": 1,
    "zamba2_plain": 1,
    "bailing_moe": 1,
    "bailing_moe_v2": 1,
    "deepseek": 1,
    "exaone": 1,
    "internlm2": 1,
    "mimo": 1,
    "minicpm": 1,
    "nemotron_nas": 3,  # a layer without sublayers, and matrices in their place, are by themselves
    "openelm": 1,
    "qwen": 1,
}
"""Nodes that their layers are, where one token is read."""


def answers(model: LoadedModel, carried: Carried = nothing, *, whole: bool) -> list[np.ndarray]:
    """Of two rows, read at once, token by token, and behind drafts that are rejected."""
    texts = [[(7 * row + 3 * i) % 50 + 1 for i in range(24)] for row in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        if not whole:
            in_parts(patch)
        batch = Batch(model, texts, carried)
        batch.feed([15, 11])
        batch.feed([2, 3], drafts=2)
        for _ in range(3):
            batch.feed([1, 1])
        return batch.answers()


def in_parts(patch: pytest.MonkeyPatch) -> None:
    parts = Composed({})
    patch.setattr(ops, "table", replace(ops.table, layers=parts.layers))
    patch.setattr(sublayer, "at_once", lambda *_: None)


@pytest.mark.parametrize("name", FAMILIES)
def test_bits(name: str, tmp_path: Path) -> None:
    with ops.using("cpu"):
        model = Reference(name).load(tmp_path)
        wanted = answers(model, whole=False)
        for column in native.kernels.columns():
            with computing(column, 2):
                got = answers(model, whole=True)
            assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True)), column


@pytest.mark.parametrize("name", FAMILIES)
def test_bits_with_adapters(name: str, tmp_path: Path) -> None:
    """Of the rows' own."""
    with ops.using("cpu"):
        model = Reference(name).load(tmp_path)
        one, two = (Adapter(model.network, LowRanks(pairs_of(model.network, k, dora=k == 2))) for k in (1, 2))
        stacks = AdapterStacks([one, two])

        def carried(_: int) -> RowAdapters:
            return RowAdapters(stacks, [((one, 0.8), (two, 1.0)), ((two, 0.5),)])

        wanted, bare = answers(model, carried, whole=False), answers(model, whole=False)
        got = answers(model, carried, whole=True)
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(got, bare, strict=True))


@pytest.mark.parametrize("name", FAMILIES)
def test_nodes(name: str, tmp_path: Path) -> None:
    graph = graph_of(name, tmp_path)
    assert graph.count("ModelkitSublayers") == FAMILIES[name]
    assert "ModelkitAttend" not in graph


def graph_of(name: str, folder: Path) -> str:
    """Of one token."""
    with ops.using("cpu"):
        model = Reference(name).load(folder)
        memory: Any = build_memory(model.described.layout)
        step = Step((0,), (1,), inputs=Inputs(mx.array([[3]])))
        memory.prepare(step)
        mx.export_to_dot(str(folder / "graph.dot"), model.network(step, memory))
    return (folder / "graph.dot").read_text()


@pytest.mark.parametrize("column", native.kernels.columns())
def test_any_of_several_streams_may_be_computed_on(column: str, tmp_path: Path) -> None:
    reference = Reference("gemma3n")
    config = {**reference.record["config"], "altup_active_idx": 2, "altup_correct_scale": False}
    with ops.using("cpu"), computing(column, 2):
        model = reference.load(tmp_path, config)
        got, wanted = answers(model, whole=True), answers(model, whole=False)
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))
    usual = reference.load(tmp_path / "usual")
    with ops.using("cpu"):
        assert not np.allclose(got[0], answers(usual, whole=True)[0])


@pytest.mark.parametrize("most", [1, 2, 3])
def test_what_an_earlier_node_has_written_is_read(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ops.using("cpu"):
        model = Reference("gemma4_text").load(tmp_path)
        wanted = answers(model, whole=False)
        monkeypatch.setattr(native_layers, "MOST", most)
        assert all(np.array_equal(a, b) for a, b in zip(answers(model, whole=True), wanted, strict=True))
