"""DeepSeek V4: attention to a window and to vectors made of many tokens, in several streams that are mixed
around every sublayer; a mixture in every layer.

Layers with a window alone turn by the plain rotation, the others by a scaled one of another base. The first
mixtures ask experts that a table has for each token's id. Draft heads (`mtp`) are left out.

Source: transformers modeling_deepseek_v4.py. A name is read as the authors' files have it, or that class.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import Caches, by_layer
from runtime.config.decoder import DecoderConfig, layer_count, read_shape
from runtime.config.fields import Fields
from runtime.config.rope_block import one_of_several
from runtime.models.family import CORRECTIONS, Family
from runtime.nn.attention.compressed import Caches as Memories
from runtime.nn.attention.compressed import CompressedAttention, Shape
from runtime.nn.attention.indexer import IndexShape
from runtime.nn.feed_forward.custom_gate import CustomGateExperts, CustomGateMLP, clipped_before
from runtime.nn.feed_forward.router import GATES, Choice, RuledRouter, weighed
from runtime.nn.linear import Takes, added, embed
from runtime.nn.module import Module
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.residual.hyper_connections import WIDE, HyperBlock, HyperHead, MixingConnection, Streams
from runtime.parts.feed_forward import Routing
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import spelled, without_spares
from runtime.tensors.quantizing import EIGHT_ELSE, Row
from runtime.tensors.towers import Towers
from runtime.trunks.decoder import rms_norms
from runtime.trunks.headed import Headed, untied_head


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    shapes: tuple[Shape, ...]
    """Of each layer's attention."""
    streams: Streams
    rounds: int
    """Of how streams are mixed (`runtime.nn.residual.hyper_connections`)."""
    hashed: tuple[bool, ...]
    """Of each layer: its experts are chosen by ids."""
    experts: int
    routing: Routing
    shared: int
    """Size of the experts that always answer, together; `intermediate_size` is that of one of the others."""
    limit: float
    """Gates are at most it, and what they are multiplied to within it on both sides."""


_KINDS = ("sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention")
_BY_RATE: dict[str, str] = dict(zip(("0", "4", "128"), _KINDS, strict=True))
_ONLY = {"norm_topk_prob": True, "attention_bias": False, "mlp_bias": False}


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("deepseek_v4",))
    fields.only(_ONLY)
    shape, layers = _shape(fields), layer_count(fields, 43)
    kinds = _kinds(fields, layers)
    plain, scaled = _ropes(fields, shape)
    experts = fields.count("n_routed_experts", 256, high=1 << 16)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=tuple(plain if kind == _KINDS[0] else scaled for kind in kinds),
        shapes=_shapes(fields, shape, kinds, plain.dims),
        streams=_streams(fields, shape),
        rounds=fields.count("hc_sinkhorn_iters", 20, high=1000),
        hashed=_hashed(fields, layers),
        experts=experts,
        routing=_routing(fields, experts),
        shared=shape["intermediate_size"] * fields.count("n_shared_experts", 1, high=1),
        limit=fields.number("swiglu_limit", 10.0, low=1e-6),
    )


def _shape(fields: Fields) -> dict[str, Any]:
    own = {**fields.raw, "intermediate_size": fields.count("moe_intermediate_size", 2048, high=1 << 22)}
    shape = read_shape(
        Fields(own),
        vocab_size=129280,
        hidden_size=4096,
        num_attention_heads=64,
        num_key_value_heads=1,
        head_dim=512,
        max_position_embeddings=1048576,
    )
    if shape["kv_heads"] != 1:
        fields.refuse("num_key_value_heads", "1: all heads share one key")
    if shape["activation"] not in ("silu", "swish"):
        fields.refuse("hidden_act", "silu")
    return shape


def _streams(fields: Fields, shape: Mapping[str, Any]) -> Streams:
    return Streams(
        fields.count("hc_mult", 4, high=64),
        shape["hidden_size"],
        eps=fields.number("hc_eps", 1e-6, low=0.0),
        norm_eps=shape["norm_eps"],
    )


def _routing(fields: Fields, experts: int) -> Routing:
    return Routing(
        _GATES[fields.choice("scoring_func", tuple(_GATES), "sqrtsoftplus")],
        fields.count("num_experts_per_tok", 6, high=experts),
        normalize=True,
        scale=fields.number("routed_scaling_factor", 1.5),
    )


_GATES: dict[str, Any] = {"sqrtsoftplus": "root", "sigmoid": "sigmoid"}


def _kinds(fields: Fields, layers: int) -> tuple[str, ...]:
    """What each layer attends to: by words, else by how many tokens make a vector, else by the family's turn.
    Files may list draft heads behind the layers, too.
    """
    rates = _list(fields, "compress_ratios")
    said = None if rates is None else [_BY_RATE.get(rate, rate) for rate in map(str, rates)]
    listed = _list(fields, "layer_types") or said
    if listed is None:
        turns = [_KINDS[2] if i < 2 or i % 2 == 0 else _KINDS[1] for i in range(layers)]
        return tuple(fields.take("layer_types", turns))
    return Fields({"layer_types": listed[:layers]}).words("layer_types", layers, _KINDS) or ()


def _list(fields: Fields, name: str) -> list[Any] | None:
    listed = fields.raw.get(name)
    if listed is not None and not isinstance(listed, list | tuple):
        fields.refuse(name, "a list with an entry for each layer")
    return None if listed is None else list(listed)


def _shapes(fields: Fields, shape: dict[str, Any], kinds: tuple[str, ...], turned: int) -> tuple[Shape, ...]:
    rates = fields.block("compress_rates")
    every = {
        kind: fields.count(other, rates.count(kind, rate, high=1 << 16), high=1 << 16)
        for kind, other, rate in (
            (_KINDS[1], "compress_rate_csa", 4),
            (_KINDS[2], "compress_rate_hca", 128),
        )
    }
    index = IndexShape(
        heads=fields.count("index_n_heads", 64, high=4096),
        size=fields.count("index_head_dim", 128, low=turned, high=4096),
        chosen=fields.count("index_topk", 512),
    )
    groups = fields.count("o_groups", 8, high=shape["heads"])
    if shape["heads"] % groups:
        fields.refuse("o_groups", f"a divisor of num_attention_heads, {shape['heads']}")
    made = {
        kind: Shape(
            hidden=shape["hidden_size"],
            heads=shape["heads"],
            head_dim=shape["head_dim"],
            turned=turned,
            query_rank=fields.count("q_lora_rank", 1024, high=1 << 16),
            window=fields.count("sliding_window", 128),
            every=every.get(kind, 0),
            index=index if kind == _KINDS[1] else None,
            out_groups=groups,
            out_rank=fields.count("o_lora_rank", 1024, high=1 << 16),
            norm_eps=shape["norm_eps"],
        )
        for kind in _KINDS
    }
    return tuple(made[kind] for kind in kinds)


def _hashed(fields: Fields, layers: int) -> tuple[bool, ...]:
    listed = _list(fields, "mlp_layer_types")
    words = Fields({"mlp_layer_types": None if listed is None else listed[:layers]})
    kinds = words.words("mlp_layer_types", layers, ("hash_moe", "moe"))
    first = fields.count("num_hash_layers", 3, low=0)
    found = [i < first for i in range(layers)] if kinds is None else [kind == "hash_moe" for kind in kinds]
    return fields.settle("mlp_layer_types", ("hash_moe", "moe"), found)


def _ropes(fields: Fields, shape: dict[str, Any]) -> tuple[RopeSpec, RopeSpec]:
    """Of layers with a window alone, and of the others: in two blocks, or in one that is the others'."""
    size = shape["head_dim"]
    share = fields.count("qk_rope_head_dim", 64, low=2, high=size) / size
    share = fields.number("partial_rotary_factor", share, low=1e-4, high=1.0)
    blocks = fields.raw.get("rope_parameters")
    if isinstance(blocks, Mapping) and any(one in blocks for one in _TURNED):
        if not all(isinstance(blocks.get(one), Mapping) for one in _TURNED):
            fields.refuse("rope_parameters", "a block for each of main and compress")
        if fields.has("rope_scaling"):
            fields.refuse("rope_scaling", "none beside the blocks of rope_parameters")
        for one in _TURNED:  # which transformers passes over, in these blocks only
            if "rope_type" not in blocks[one] and blocks[one].get("type", "default") != "default":
                fields.refuse("rope_parameters", f"rope_type in place of type in {one}")
        plain, scaled = (one_of_several(blocks[one], f"rope_parameters.{one}") for one in _TURNED)
    else:
        plain = {"rope_theta": fields.number("rope_theta", 10000.0, low=2.0)}
        base = fields.number("compress_rope_theta", 160000.0, low=2.0)
        scaled = {**fields.rope_parameters(), "rope_theta": base, "partial_rotary_factor": share}
        if scaled["rope_type"] == "yarn":
            scaled.setdefault("attention_factor", 1.0)
    first, second = (
        read_rope(
            {"partial_rotary_factor": share, **one},
            head_dim=size,
            max_positions=shape["context_length"],
            traditional=True,
        )
        for one in (plain, scaled)
    )
    if first.dims != second.dims:
        fields.refuse("rope_parameters", "the same partial_rotary_factor in both blocks")
    return first, second


_TURNED = ("main", "compress")


def layout(config: Config) -> list[LayerSpec]:
    return [spec for shape in config.shapes for spec in shape.memory]


class HashRouter(Module):
    """Experts by a token's id, and how much they count by its vector."""

    takes_pairs: ClassVar[Takes] = "matrix"
    reads_ids: ClassVar[bool] = True
    """Whoever has the layer has to be told them (`runtime.ranks`)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.weight = mx.zeros((config.experts, config.hidden_size))
        self.tid2eid = mx.zeros((config.vocab_size, config.routing.each), mx.int32)
        self._routing = config.routing

    def __call__(self, x: mx.array, step: Step) -> Choice:
        x = x.astype(mx.float32)
        scores = ops.table.matmul(x, self.weight.astype(mx.float32), transposed=True)
        gates = GATES[self._routing.gates](added(self, x, scores, step))
        chosen = self.tid2eid[step.ids]
        return chosen, weighed(self._routing, gates, chosen)


class Mixture(Module):
    adds: ClassVar[tuple[str, ...]] = ("switch_mlp", "shared_experts")

    def __init__(self, config: Config, *, hashed: bool) -> None:
        super().__init__()
        own = config.hidden_size, config.experts, config.routing
        self.gate: HashRouter | RuledRouter = (
            HashRouter(config) if hashed else RuledRouter(*own, corrected=True)
        )
        gate = clipped_before(config.limit)
        self.switch_mlp = CustomGateExperts(
            config.hidden_size, config.intermediate_size, config.experts, gate
        )
        self.shared_experts = CustomGateMLP(config.hidden_size, config.shared, gate)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return self.switch_mlp(x, self.gate(x, step), step) + self.shared_experts(x, step)


def _block(config: Config, place: int, rope: Rope) -> HyperBlock[Memories]:
    attention = CompressedAttention(config.shapes[place], rope)
    mixture = Mixture(config, hashed=config.hashed[place])
    mixing = partial(MixingConnection, config.streams, config.rounds)
    return HyperBlock(attention, mixture, rms_norms(config), mixing)


class Trunk(Module):
    in_turn: ClassVar[str] = "layers"

    def __init__(self, config: Config) -> None:
        super().__init__()
        ropes = {spec: Rope(spec) for spec in config.ropes if spec is not None}
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [
            _block(config, i, ropes[spec]) for i, spec in enumerate(config.ropes) if spec is not None
        ]
        self.hc_head = HyperHead(config.streams)
        self.norm = rms_norms(config)()
        self._streams = config.streams.count

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        own = by_layer(caches, 3)
        return self.leaving(ops.table.layers(self.layers, self.entering(step), step, own), step)

    def entering(self, step: Step) -> mx.array:
        """What enters the first layer, [B, L, S * D] of S streams."""
        step.refuse_positions("groups of tokens are counted by their places")
        return mx.tile(step.embedded(self.embed), (1, 1, self._streams))

    def leaving(self, streams: mx.array, step: Step) -> mx.array:
        """What the trunk gives of what leaves the last layer."""
        del step
        return self.norm(self.hc_head(streams))

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embed_tokens, ids, step)


class DeepseekV4(Headed):
    def __init__(self, config: Config) -> None:
        super().__init__(Trunk(config), untied_head(config))


def build(config: Config) -> DeepseekV4:
    return DeepseekV4(config)


_NAMES = (
    *(("model.", ""), ("embed.", "embed_tokens."), ("head.", "lm_head."), ("hc_head_", "hc_head.hc_")),
    *((part, f"model.{part}") for part in ("embed_tokens.", "layers.", "norm.", "hc_head.")),
    *((".attn.", ".self_attn."), (".ffn.", ".mlp."), (".attn_sink", ".sinks"), (".ape", ".position_bias")),
    *((".attn_norm.", ".input_layernorm."), (".ffn_norm.", ".post_attention_layernorm.")),
    *((".hc_attn_", ".attn_hc."), (".hc_ffn_", ".ffn_hc."), (".gate.bias", ".gate.e_score_correction_bias")),
    (".indexer.compressor.", ".compressor.indexer."),
    (".self_attn.indexer.weights_proj.", ".self_attn.compressor.indexer.scorer.weights_proj."),
    (".self_attn.indexer.wq_b.", ".self_attn.compressor.indexer.q_b_proj."),
    *((f".{owner}.norm.", f".{owner}.kv_norm.") for owner in ("self_attn", "compressor", "indexer")),
    *((".wq_a.", ".q_a_proj."), (".wq_b.", ".q_b_proj."), (".wo_a.", ".o_a_proj."), (".wo_b.", ".o_b_proj.")),
    *((".wkv.", ".kv_proj."), (".wgate.", ".gate_proj."), (".q_norm.", ".q_a_norm.")),
    *((".w1.", ".gate_proj."), (".w2.", ".down_proj."), (".w3.", ".up_proj.")),
)
"""The authors', and those that transformers saves (a layer's `norm`) -> its class's."""


def adapt(config: Config, weights: Weights) -> Weights:
    """Matrices of groups of heads apart, and tables of experts in 32 bits."""
    own = {spelled(name, _NAMES): array for name, array in weights.items()}
    made: Weights = {}
    for name, array in to_switch(without_spares(config, own), config.experts).items():
        if ".o_a_proj." in name and array.ndim == 2:
            array = array.reshape(config.shapes[0].out_groups, -1, array.shape[-1])
        made[name] = array.astype(mx.int32) if name.endswith(".tid2eid") else array
    for place, hashed in enumerate(config.hashed):
        if hashed:  # files may have a correction of what is no choice
            made.pop(f"model.layers.{place}.mlp.gate.e_score_correction_bias", None)
    return made


_HEADS = ("mtp.", "model.mtp.")
_OF_IMAGES = ".gate.bias_vl"


_TOWERS = Towers(images=("vision.",), projectors=("aligner.", "image_"))
_ROWS = (
    Row(lambda t, _: t.name == "embed.weight", EIGHT_ELSE, "token embedding"),
    Row(lambda t, _: t.name == "head.weight", EIGHT_ELSE, "output head"),
    Row(lambda t, r: r.promotes and t.has(".compressor.", ".indexer."), EIGHT_ELSE, "keys of many tokens"),
)

FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    # Sums over streams go by those numbers, too.
    wide=(*CORRECTIONS, ".position_bias", ".sinks", *WIDE),
    checkpoint=always(
        Checkpoint(rows=_ROWS, heads=_HEADS, spare=(_OF_IMAGES,), modules=_NAMES, towers=_TOWERS)
    ),
)
