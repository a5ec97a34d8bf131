"""GGUF adapters: pairs for llama.cpp's tensors become pairs for a checkpoint's."""

from typing import Any

import numpy as np
import pytest

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.architectures import Imported, apply_to_pair, halves, read_adapter
from modelkit.source.gguf.architectures.apply import apply
from modelkit.source.gguf.architectures.changes import Columns, Turned
from runtime.config.text import text_config
from tests.support.gguf_references import GgufReference

RANK = 3
METADATA = {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": 6.0}


Pairs = dict[str, tuple[np.ndarray, np.ndarray]]


def _adapter(name: str, imported: Imported) -> tuple[dict[str, Any], Pairs]:
    """Pairs for all of the model's matrices whose numbers only move: metadata, and (left, right) by name."""
    reference = GgufReference(name)
    fixed = {
        run.tensor
        for origin in imported.tensors.values()
        if not isinstance(origin.change, (type(None), Columns, Turned))
        for run in origin.runs
    }
    rng = np.random.default_rng(1)
    pairs = {
        tensor: (
            rng.random((*shape[:-1], RANK), dtype=np.float32),
            rng.random((*shape[:-2], RANK, shape[-1]), dtype=np.float32),
        )
        for tensor, shape in reference.shapes.items()
        if len(shape) > 1 and tensor not in fixed and tensor.endswith(".weight") and "conv" not in tensor
    }
    return {**METADATA, "general.architecture": reference.record["architecture"]}, pairs


def _shapes(pairs: Pairs) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for name, pair in pairs.items():
        for (stored, turned), array in zip(halves(name), pair, strict=True):
            found[stored] = array.shape[::-1] if turned else array.shape
    return found


@pytest.mark.parametrize(
    "name",
    [
        "llama",
        "mixtral",
        "qwen3_5",
        "gpt_neox",
        "phi3_window",
        "gemma4_moe",
        "granitemoeshared",
        "deepseek_v3",
    ],
)
def test_pairs_move_as_their_matrices_do(name: str) -> None:
    """The pair for a checkpoint's matrix is what would become of the product, had it been added before."""
    reference = GgufReference(name)
    metadata, pairs = _adapter(name, reference.imported)
    parts = read_adapter(metadata, _shapes(pairs), text_config(reference.config), "adapter.gguf")
    assert parts.alpha == 6.0
    assert {source for origin in parts.tensors.values() for source in origin.tensors} == pairs.keys()
    for origin in parts.tensors.values():
        left, right = apply_to_pair(origin, pairs.__getitem__, np)
        wanted = apply(origin, lambda tensor: pairs[tensor][0] @ pairs[tensor][1], np)
        assert (left @ right).shape == origin.shape
        np.testing.assert_allclose(left @ right, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "kind", "match"),
    [
        ({"adapter.type": "control_vector"}, UnsupportedSource, "control_vector"),
        (
            {"general.type": None, "general.architecture": "controlvector"},
            UnsupportedSource,
            "is a control vec",
        ),
        ({"general.type": "model"}, UnsupportedSource, "is not an adapter: its `general.type` is 'model'"),
        ({"adapter.lora.alpha": None}, MalformedFile, "alpha"),
        ({"adapter.lora.stripes": 2}, UnsupportedSource, "stripes"),
        ({"general.architecture": "gemma"}, UnsupportedSource, "gemma"),
    ],
)
def test_what_is_no_such_adapter_is_refused(
    change: dict[str, Any], kind: type[Exception], match: str
) -> None:
    reference = GgufReference("llama")
    metadata, pairs = _adapter("llama", reference.imported)
    with pytest.raises(kind, match=match):
        read_adapter({**metadata, **change}, _shapes(pairs), reference.config, "adapter.gguf")


def test_the_embeddings_halves_are_the_other_way_round() -> None:
    """As llama.cpp checks them: lora_a has a row for each token, lora_b one for each element of a vector."""
    reference = GgufReference("llama")
    vocabulary, hidden = reference.shapes["token_embd.weight"]
    shapes = {"token_embd.weight.lora_a": (vocabulary, 2), "token_embd.weight.lora_b": (hidden, 2)}
    metadata = {**METADATA, "general.architecture": "llama"}
    parts = read_adapter(metadata, shapes, reference.config, "adapter.gguf")
    assert parts.tensors["model.embed_tokens.weight"].shape == (vocabulary, hidden)


@pytest.mark.parametrize(
    ("name", "shape", "match"),
    [
        ("blk.0.attn_q.weight.lora_c", (3, 4), "lora_c"),
        ("blk.0.attn_k.weight.lora_a", None, "lora_a"),
        ("blk.0.attn_k.weight.lora_a", (4, 64), "do not meet"),
        ("blk.0.attn_norm.weight.lora_b", (64, 3), "attn_norm"),
        ("blk.0.attn_q.weight", (64, 64), "`blk.0.attn_q.weight` is not half of a pair"),
    ],
)
def test_halves_that_do_not_fit_are_refused(name: str, shape: tuple[int, ...] | None, match: str) -> None:
    reference = GgufReference("llama")
    metadata, pairs = _adapter("llama", reference.imported)
    shapes = {**_shapes(pairs), name: shape}
    shapes = {tensor: size for tensor, size in shapes.items() if size is not None}
    with pytest.raises((UnsupportedSource, MalformedFile), match=match):
        read_adapter(metadata, shapes, reference.config, "adapter.gguf")


def test_a_norm_that_llama_cpp_has_plus_one_is_refused() -> None:
    reference = GgufReference("gemma3")
    metadata = {**METADATA, "general.architecture": "gemma3"}
    said = r"layernorm\.weight` of a gemma3 model cannot be in an adapter"
    with pytest.raises(UnsupportedSource, match=said):
        read_adapter(metadata, {"blk.0.attn_norm.weight": (64,)}, reference.config, "adapter.gguf")


def test_a_norm_that_lies_in_groups_has_no_pair() -> None:
    reference = GgufReference("mamba2")
    groups, width = reference.shapes["blk.0.ssm_norm.weight"]
    shapes = {"blk.0.ssm_norm.weight.lora_a": (2, width), "blk.0.ssm_norm.weight.lora_b": (groups, 2)}
    metadata = {**METADATA, "general.architecture": "mamba2"}
    with pytest.raises(
        UnsupportedSource, match=r"mixer\.norm\.weight` of a mamba2 model cannot be in an adapter"
    ):
        read_adapter(metadata, shapes, reference.config, "adapter.gguf")
