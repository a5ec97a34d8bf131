"""BitNet b1.58 (arXiv 2402.17764): a Llama with a norm in front of each sublayer's last projection, a squared
ReLU, matrices of -1, 0 and 1 times a number each, and inputs of 8 bits.

Files say in `quantization_config` how matrices are stored: four rows in a byte beside `weight_scale`
(offline), or as the floats that were trained (online), which are rounded when they are read. Either way they
are held in two bits here, exactly. Inputs of projections are rounded by the largest of each token. A file
that says nothing of it is computed in floats.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.nn.activation import gated
from runtime.nn.attention.self_attention import Projected, SelfAttention
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.linear import linear
from runtime.nn.norm import Normalize
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PreNorm
from runtime.nn.residual.sublayer import projections
from runtime.nn.rounding import RoundingNorm, rounded
from runtime.parts.feed_forward import FeedForwardParts
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import TRUNK, Checkpoint, always
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_ropes, rms_norms

Stored = Literal["floats", "trained", "times", "divided"]
"""trained: floats to be rounded. times, divided: packed, times their scale or divided by it."""

_BASE = 500000.0
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_ROWS = 4  # of a byte
_CODES = 16  # of a word of MLX's


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    stored: Stored


def parse(raw: Mapping[str, Any]) -> Config:
    """Fields as transformers spells them. UnsupportedModel names the field that cannot be run."""
    fields = Fields(raw)
    layers = layer_count(fields, default=30)
    shape = read_shape(
        fields,
        eps=1e-5,
        activation="relu2",
        vocab_size=128256,
        hidden_size=2560,
        intermediate_size=6912,
        num_attention_heads=20,
        num_key_value_heads=5,
    )
    inner = shape["heads"] * shape["head_dim"]
    if inner != shape["hidden_size"]:
        raise UnsupportedModel(
            f"config.json: heads have {inner} elements, and hidden_size is {shape['hidden_size']}"
        )
    stored = _stored(fields)
    bias = fields.flag("attention_bias")
    if bias and stored != "floats":
        raise UnsupportedModel("config.json: attention_bias beside ternary weights is not run")
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape, theta=_BASE),) * layers,
        bias=bias,
        stored=stored,
    )


def _stored(fields: Fields) -> Stored:
    block = fields.raw.get("quantization_config")
    if not isinstance(block, Mapping) or block.get("quant_method") != "bitnet":
        return "floats"
    inner = Fields(block)
    if inner.flag("use_rms_norm"):
        raise UnsupportedModel("config.json: use_rms_norm is True, and norms of its own are not run")
    if block.get("modules_to_not_convert") not in (None, ["lm_head"]):
        raise UnsupportedModel("config.json: modules_to_not_convert is not run for BitNet")
    if inner.choice("linear_class", ("bitlinear", "autobitlinear"), "bitlinear") == "bitlinear":
        return "divided"
    mode = inner.choice("quantization_mode", ("online", "offline"), "offline")
    return "trained" if mode == "online" else "times"


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [PreNorm(NormedAttention(config, rope), NormedMLP(config), norm) for rope in layer_ropes(config)]
    return CausalLM(config, layers, norm())


class NormedAttention(SelfAttention):
    """[B, L, D] -> [B, L, D]."""

    norms_together: ClassVar[str] = "attn_sub_norm"
    """Of all that its last projection reads."""

    def __init__(self, config: Config, rope: Rope | None) -> None:
        super().__init__(config, rope, qkv_bias=config.bias, output_bias=config.bias)
        self._rounds = config.stored != "floats"
        self.attn_sub_norm = RoundingNorm(config.hidden_size, config.norm_eps, rounds=self._rounds)

    def flat(self, x: mx.array, step: Step) -> Projected:
        read = rounded(x) if self._rounds else x
        queries, keys, values = projections((self.q_proj, self.k_proj, self.v_proj), read, step)
        return queries, keys, values

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        return self.attn_sub_norm(super().seen(x, step, cache))


class NormedMLP(GatedMLP):
    """[B, L, D] -> [B, L, D]."""

    by_inner: ClassVar[bool] = True
    norms_together: ClassVar[str] = "ffn_sub_norm"
    """As above."""

    def __init__(self, config: Config) -> None:
        super().__init__(config.hidden_size, config.intermediate_size, activation=config.activation)
        self._rounds = config.stored != "floats"
        self.ffn_sub_norm = RoundingNorm(config.intermediate_size, config.norm_eps, rounds=self._rounds)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        read = rounded(x) if self._rounds else x
        gate, up = projections((self.gate_proj, self.up_proj), read, step)
        return linear(self.down_proj, self.ffn_sub_norm(gated(self._activation, gate, up)), step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> FeedForwardParts | None:
        """Kernels have no norm there."""
        return None


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Published tensors -> the network's: ternary matrices in two bits."""
    if config.stored == "floats":
        return without_spares(config, weights)
    found = dict(weights)
    for name, weight in weights.items():
        module = name.removesuffix(".weight")
        if module == name or not module.endswith(_PROJECTIONS) or weight.ndim != 2:
            continue
        if weight.dtype == mx.uint8:
            scale = weights.get(f"{module}.weight_scale")
            if config.stored == "trained" or scale is None or scale.size != 1:
                continue  # reported as tensors that do not fit
            del found[f"{module}.weight_scale"]
            found.update(_held(module, _unpacked(weight), _factor(config, scale)))
        elif config.stored == "trained" and mx.issubdtype(weight.dtype, mx.floating):
            found.update(_held(module, *_ternary(weight)))
    return without_spares(config, found)


def _factor(config: Config, scale: mx.array) -> mx.array:
    wide = scale.reshape(1, 1).astype(mx.float32)
    return (1 / wide if config.stored == "divided" else wide).astype(scale.dtype)


def _unpacked(packed: mx.array) -> mx.array:
    """[rows / 4, K] bytes to codes 0 to 2, [rows, K], K columns: the lowest bits are the first quarter's."""
    return mx.concatenate([(packed >> (2 * place)) & 3 for place in range(_ROWS)])


def _ternary(weight: mx.array) -> tuple[mx.array, mx.array]:
    """Codes 0 to 2 of what was trained, and the number that they stand for."""
    wide = weight.astype(mx.float32)
    scale = 1 / mx.maximum(mx.mean(mx.abs(wide)), 1e-5)
    codes = mx.clip(mx.round(wide * scale), -1, 1) + 1
    return codes.astype(mx.uint8), (1 / scale).reshape(1, 1).astype(weight.dtype)


def _held(module: str, codes: mx.array, number: mx.array) -> dict[str, mx.array]:
    """Codes c that stand for (c - 1) times a number, [1, 1]: in MLX's two bits, or as floats where rows are
    no multiple of a group.
    """
    rows, width = codes.shape
    group = next((size for size in (128, 64, 32) if width % size == 0), None)
    if group is None:
        return {f"{module}.weight": (codes.astype(number.dtype) - 1) * number}
    places = mx.arange(_CODES, dtype=mx.uint32) * 2
    words = mx.sum(codes.reshape(rows, -1, _CODES).astype(mx.uint32) << places, axis=-1)
    scales = mx.broadcast_to(number, (rows, width // group))
    return {
        f"{module}.weight": words.astype(mx.uint32),
        f"{module}.scales": mx.contiguous(scales),
        f"{module}.biases": mx.contiguous(-scales),
    }


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(prefix=TRUNK)),
)
