"""mlx-lm's classes with the face that makers of references ask of transformers' models (run by hand, where
torch and mlx-lm are installed).

transformers has no class for some kinds: their code came with their checkpoints. For those an entry of
tests/support/entries says every field, as a config.json does, and what mlx-lm's class computes of it in
float32 is the reference. It is asked without a cache, of the tensors that a published file has; so its own
`sanitize` is asked, too.
"""

import copy
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields as fields_of
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

import mlx.core as mx
import numpy as np
import torch
from mlx.utils import tree_flatten
from mlx_lm.models import kimi_k3, mixtral, phi3small, plamo2, plamo3
from mlx_lm.models.base import create_causal_mask
from mlx_lm.utils import _get_classes
from safetensors.torch import save_file

mx.disable_compile()  # routers of one expert end the process otherwise
_ONE = re.compile(r"\.experts\.(\d+)\.(w\d)\.")
_NUMBERED = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
_STACKED = re.compile(r"\.switch_mlp\.")
# What published files call otherwise and its `sanitize` does not know, by model_type: (its name, the file's).
_FILES: dict[str, tuple[tuple[str, str], ...]] = {
    "bailing_hybrid": ((".mlp.gate.gate_proj.weight", ".mlp.gate.weight"),),
    "bailing_moe": ((".mlp.gate.gate_proj.weight", ".mlp.gate.weight"),),
    "nemotron-nas": ((".self_attn.linear.", ".self_attn.linear_attn."), (".mlp.linear.", ".mlp.linear_mlp.")),
}
# Fields that it does not compute as the authors' class does.
_OTHERWISE: dict[str, set[str]] = {
    "hunyuan": {"moe_topk", "tie_word_embeddings"},
    "minicpm": {"tie_word_embeddings"},
    "phi3small": {"blocksparse_vert_stride", "dense_attention_every_n_layers"},
}
# The same where `sanitize` knows, and does more with it.
_PUBLISHED: dict[str, tuple[tuple[str, str], ...]] = {
    "Klear": ((".mlp.experts.", ".mlp.switch_mlp."),),
    "kimi_k3": (
        (".mlp.switch_mlp.gate_proj.", ".block_sparse_moe.switch_mlp.w1."),
        (".mlp.switch_mlp.up_proj.", ".block_sparse_moe.switch_mlp.w3."),
        (".mlp.switch_mlp.down_proj.", ".block_sparse_moe.switch_mlp.w2."),
        (".mlp.gate.", ".block_sparse_moe.gate."),
        (".mlp.e_score_correction_bias", ".block_sparse_moe.gate.e_score_correction_bias"),
        (".mlp.shared_experts.", ".block_sparse_moe.shared_experts."),
        (".mlp.routed_expert_", ".block_sparse_moe.routed_expert_"),
    ),
    "minicpm": (
        (".switch_mlp.gate_proj.", ".switch_mlp.w1."),
        (".switch_mlp.up_proj.", ".switch_mlp.w3."),
        (".switch_mlp.down_proj.", ".switch_mlp.w2."),
    ),
    "step3p5": (
        (".mlp.switch_mlp.", ".moe."),
        (".mlp.gate.gate.", ".moe.gate."),
        (".mlp.gate.router_bias", ".moe.router_bias"),
        (".mlp.share_expert.", ".share_expert."),
    ),
}
# What it takes alone of a field whose other values it computes as well.
_TAKEN: dict[str, dict[str, Any]] = {"phi3small": {"blocksparse_block_size": 32}}
# What files have flat and its `sanitize` gives an axis for heads, by model_type.
_FLAT = {"rwkv7": re.compile(r"\.(?:k_k|k_a|g_norm\.weight|g_norm\.bias)$")}


class MlxConfig:
    """The fields of a file."""

    attribute_map: Mapping[str, str] = {}
    is_encoder_decoder = False

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = copy.deepcopy(dict(fields))
        self.model_type, self.vocab_size = self._fields["model_type"], self._fields["vocab_size"]
        self.architectures = self._fields.get("architectures")
        self.architectures = self._fields["architectures"]

    def to_dict(self) -> dict[str, Any]:
        return self._fields

    def get_text_config(self) -> "MlxConfig":
        return self

    def made(self) -> Any:
        return MlxModel(self)

    @property
    def asked(self) -> set[str]:
        """Names of the fields that mlx-lm's class takes, without that which no checkpoint has and those that
        it computes otherwise.
        """
        others = {"rope_traditional", *_OTHERWISE.get(self.model_type, ())}
        kind = kimi_k3.TextArgs if self.model_type == "kimi_k3" else _get_classes(_known(self._fields))[1]
        return {field.name for field in fields_of(kind)} - others


def _known(raw: dict[str, Any]) -> dict[str, Any]:
    """As a kind that it has: DeciLM 7B as a Nemotron NAS whose layers differ in their key heads alone."""
    if raw["model_type"] != "deci":
        return raw
    mult = 1.5 * raw["intermediate_size"] / raw["hidden_size"]
    shares = (raw["num_attention_heads"] // count for count in raw["num_key_value_heads_per_layer"])
    blocks = [{"attention": {"n_heads_in_group": share}, "ffn": {"ffn_mult": mult}} for share in shares]
    return {**raw, "model_type": "nemotron-nas", "block_configs": blocks}


class MlxModel:
    """mlx-lm's model over weights that torch holds, under the names of a file."""

    source: ClassVar[Mapping[str, str]] = {"mlx_lm": version("mlx-lm")}

    def __init__(self, config: MlxConfig) -> None:
        self.config, raw = config, config.to_dict()
        own = _known(raw)
        model, arguments = _get_classes(own)
        self._model = model(arguments.from_dict({**copy.deepcopy(own), **_TAKEN.get(config.model_type, {})}))
        if config.model_type == "bailing_moe_linear":  # whose first layer forgets as the second to mlx-lm
            first, layers = self._model.layers[0].attention, raw["num_hidden_layers"]
            if hasattr(first, "_slope"):
                first._slope = first._slope / (1 + 1e-5) * (1 + 1 / (layers - 1) + 1e-5)
        if config.model_type == "bailing_hybrid":  # whose layers all forget as the next ones to mlx-lm
            for layer in (layer.attention for layer in self._model.layers if not layer.is_global):
                layer.layer_idx -= 1
                layer._slope = layer._get_slopes()
        if config.model_type == "rwkv7":  # whose norms of heads divide by what suits heads of 64, to mlx-lm
            for layer in self._model.layers:
                layer.attn.g_norm.eps = raw["head_dim"] * raw["norm_eps"]
        if config.model_type == "longcat_flash_ngram":  # whose norms of latents add 1e-5, to mlx-lm
            for layer in (attention for block in self._model.layers for attention in block.self_attn):
                layer.q_a_layernorm.eps = layer.kv_a_layernorm.eps = 1e-6
        if config.model_type == "phi3small":
            for layer in self._model.layers[::2]:
                layer.self_attn.blocksparse_block_size = raw["blocksparse_block_size"]
            self._model._dummy_tokenizer_ids = mx.array([], mx.int32)  # its own are beyond a small vocabulary
        if config.model_type == "minicpm" and raw.get("num_experts"):  # of which it has the MLPs alone
            sizes = SimpleNamespace(**raw, num_local_experts=raw["num_experts"])
            for layer in self._model.layers:
                layer.mlp = mixtral.MixtralSparseMoeBlock(sizes)
        own = {name: tuple(array.shape) for name, array in tree_flatten(self._model.parameters())}
        self._tensors = {name: torch.empty(shape) for name, shape in _of_a_file(config.model_type, own)}

    def __call__(self, ids: torch.Tensor) -> Any:
        arrays = {self._own(name): mx.array(tensor.numpy()) for name, tensor in self._tensors.items()}
        if self.config.model_type == "minicpm":
            arrays = _stacked(arrays)
        if hasattr(self._model, "sanitize"):
            arrays = self._model.sanitize(arrays)
        self._model.train(self.config.model_type == "kimi_k3")  # which else keeps products of old weights
        self._model.load_weights(list(arrays.items()), strict=True)
        with _by_its_authors(self.config.to_dict()):
            logits = self._model(mx.array(ids.numpy()))
        assert logits.dtype == mx.float32, logits.dtype
        return SimpleNamespace(logits=torch.from_numpy(np.array(logits)))

    def _own(self, name: str) -> str:
        for ours, theirs in _FILES.get(self.config.model_type, ()):
            name = name.replace(theirs, ours)
        return name

    def state_dict(self) -> dict[str, torch.Tensor]:
        return dict(self._tensors)

    def load_state_dict(
        self, state: Mapping[str, torch.Tensor], *, strict: bool
    ) -> tuple[list[str], list[str]]:
        for name, tensor in state.items():
            assert self._tensors[name].shape == tensor.shape, name
            self._tensors[name].copy_(tensor)
        assert not strict
        return [name for name in self._tensors if name not in state], []

    def parameters(self) -> Iterator[torch.Tensor]:
        return iter(self._tensors.values())

    def save_pretrained(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config.to_dict()), encoding="utf-8")
        save_file(self._tensors, folder / "model.safetensors", metadata={"format": "pt"})

    def get_output_embeddings(self) -> None:
        """A tied head has no tensor, as in files."""

    def tie_weights(self) -> None: ...


def _by_its_authors(raw: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """While it lasts, mlx-lm's class computes what the authors' code does and it leaves out."""
    if raw["model_type"] == "plamo3":  # whose window is one token wider in prompts to mlx-lm

        def masked(x: mx.array, _: Any, window_size: int | None = None) -> Any:
            return create_causal_mask(
                x.shape[1], window_size=None if window_size is None else window_size - 1
            )

        return patch.object(plamo3, "create_attention_mask", masked)
    if raw["model_type"] == "phi3small":
        # Whose queries see later tokens of their blocks, and stand in later blocks where none ends with them.
        of_blocks, size = phi3small.Attention._block_sparse_mask, raw["blocksparse_block_size"]

        def seen(layer: Any, queries: int, keys: int) -> tuple[mx.array, mx.array]:
            whole = -(-keys // size) * size
            blocks, tokens = of_blocks(layer, whole, whole)
            return blocks, tokens[..., :queries, :keys] & create_causal_mask(queries)

        return patch.object(phi3small.Attention, "_block_sparse_mask", seen)
    if raw["model_type"] != "plamo2":
        return nullcontext()
    window = raw["attention_window_size"] + 1  # a token, and as many before it
    return patch.object(
        plamo2, "create_attention_mask", lambda x, _: create_causal_mask(x.shape[1], window_size=window)
    )


def _stacked(arrays: dict[str, mx.array]) -> dict[str, mx.array]:
    """Experts that lie one by one, under Mixtral's names, as mlx-lm has them."""
    found: dict[str, Any] = {}
    for name, array in arrays.items():  # a layer's experts come in order
        parts = _ONE.split(name)
        if len(parts) == 1:
            found[name] = array
        else:
            found.setdefault(f"{parts[0]}.switch_mlp.{_NUMBERED[parts[2]]}.{parts[3]}", []).append(array)
    return {name: mx.stack(each) if isinstance(each, list) else each for name, each in found.items()}


def _of_a_file(kind: str, own: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes: experts, one tensor to mlx-lm, lie one by one."""
    for name, shape in own.items():
        for ours, theirs in (*_FILES.get(kind, ()), *_PUBLISHED.get(kind, ())):
            name = name.replace(ours, theirs)
        if name.endswith(".unembed_out.weight"):
            continue
        if name.endswith(".embed_q.weight"):  # which lies in one matrix with the other
            heads, rank, content = shape
            values = own[name.replace(".embed_q.", ".unembed_out.")][1]
            yield name.replace(".embed_q.", ".kv_b_proj."), (heads * (content + values), rank)
        elif ".qkv_proj." in name and kind == "kimi_k3":
            yield from ((name.replace("qkv", part), (shape[0] // 3, shape[1])) for part in "qkv")
        elif ".qkv_conv." in name and kind == "kimi_k3":
            for part in "qkv":
                yield name.replace("qkv_conv.conv", f"{part}_conv1d"), (shape[0] // 3, 1, shape[1])
        elif kind in _FLAT and _FLAT[kind].search(name):
            yield name, (math.prod(shape),)
        elif _STACKED.search(name):
            yield from ((_STACKED.sub(f".experts.{i}.", name), shape[1:]) for i in range(shape[0]))
        else:
            yield name, shape
