"""dots.llm1, Solar Open, EXAONE MoE (K-EXAONE) and Hunyuan 3: a grouped-query decoder with DeepSeek-V3's
mixtures.

All but Solar norm each query and key head. dots may slide in its later layers; EXAONE slides in most, and
leaves positions out of the others (NoPE). Draft heads in files of EXAONE (`mtp.`) and of Hunyuan (layers
behind the last) are left out.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import layer_count, one_rope, read_shape, read_windows
from runtime.config.expert_groups import read_groups
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import CORRECTIONS, Family
from runtime.models.olmo2 import full_every
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PreNorm
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_ropes, rms_norms, self_attention
from runtime.trunks.mixture import MixtureConfig, MixtureSpec, feed_forward

Windows = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    head_norm: bool
    """Queries and keys are normed per head."""
    qkv_bias: bool
    output_bias: bool
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    readers = {"dots1": _dots, "solar_open": _solar, "exaone_moe": _exaone, "hy_v3": _hunyuan}
    return readers[fields.choice("model_type", tuple(readers))](fields)


def _dots(fields: Fields) -> Config:
    shape = read_shape(fields, max_position_embeddings=2048)
    layers = layer_count(fields)
    bias = fields.flag("attention_bias")
    dense = fields.count("first_k_dense_replace", 0, low=0)
    return Config(
        **shape,
        windows=_late_windows(fields, layers),
        ropes=(one_rope(fields, shape),) * layers,
        head_norm=True,
        qkv_bias=bias,
        output_bias=bias,
        sparse=tuple(i >= dense for i in range(layers)),
        mixture=_mixture(
            fields,
            experts=fields.count("n_routed_experts", fields.raw.get("num_local_experts"), high=1 << 16),
            chosen=fields.count("num_experts_per_tok"),
            inner=1408,
            shared=fields.count("n_shared_experts", high=1 << 10),
            normalize=False,
        ),
    )


def _late_windows(fields: Fields, layers: int) -> Windows:
    """Without layer_types, the layers from `max_window_layers` on slide."""
    if _never_slides(fields):
        return (None,) * layers
    window = fields.count("sliding_window", 4096)
    kinds = fields.words("layer_types", layers, ("full_attention", "sliding_attention"))
    first = fields.count("max_window_layers", 62, low=0)
    slides = [k == "sliding_attention" for k in kinds] if kinds else [i >= first for i in range(layers)]
    return tuple(window if slide else None for slide in slides)


def _never_slides(fields: Fields) -> bool:
    """Does the file take the window away? One that leaves it out has the family's own."""
    if fields.raw.get("sliding_window", 4096) is not None:
        return False
    if "sliding_attention" in (fields.raw.get("layer_types") or ()):
        raise UnsupportedModel("config.json: layer_types has sliding layers, and sliding_window is null")
    return True


def _solar(fields: Fields) -> Config:
    """Every layer is a mixture, whatever `first_k_dense_replace` of older files says."""
    shape = read_shape(
        fields,
        eps=1e-5,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=1,
        max_position_embeddings=131072,
    )
    layers = layer_count(fields)
    for name in ("first_k_dense_replace", "use_qk_norm"):
        if fields.raw.get(name):
            raise UnsupportedModel(
                f"config.json: {name} is {quoted(fields.raw[name])}, and Solar Open has none"
            )
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape, theta=1e6),) * layers,
        head_norm=False,
        qkv_bias=fields.flag("attention_bias"),
        output_bias=False,
        sparse=(True,) * layers,
        mixture=_mixture(
            fields,
            experts=fields.count("n_routed_experts", fields.count("num_local_experts", 128), high=1 << 16),
            chosen=fields.count("num_experts_per_tok", 8),
            inner=1280,
            shared=fields.count("n_shared_experts", 1, high=1 << 10),
            normalize=True,
        ),
    )


def _exaone(fields: Fields) -> Config:
    shape = read_shape(fields, eps=1e-5, max_position_embeddings=2048)
    layers = layer_count(fields)
    everywhere = _never_slides(fields)
    windows = (None,) * layers if everywhere else _exaone_windows(fields, layers)
    rope = one_rope(fields, shape)
    return Config(
        **shape,
        windows=windows,
        ropes=tuple(rope if everywhere or window else None for window in windows),
        head_norm=True,
        qkv_bias=False,
        output_bias=False,
        sparse=_exaone_sparse(fields, layers),
        mixture=_mixture(
            fields,
            experts=fields.count("num_experts", fields.count("num_local_experts", 64), high=1 << 16),
            chosen=fields.count("num_experts_per_tok", 8),
            inner=1024,
            shared=fields.count("num_shared_experts", 1, high=1 << 10),
            normalize=True,
            scale=2.5,
        ),
    )


def _exaone_windows(fields: Fields, layers: int) -> Windows:
    window = fields.count("sliding_window", 4096)
    return read_windows(fields, layers, full_every=full_every(fields), window=window)


def _exaone_sparse(fields: Fields, layers: int) -> tuple[bool, ...]:
    """By `mlp_layer_types`; the first files list `is_moe_layer` instead."""
    kinds = fields.words("mlp_layer_types", layers, ("dense", "sparse"))
    flags = fields.raw.get("is_moe_layer")
    if flags is not None and (
        not isinstance(flags, list) or len(flags) != layers or any(type(flag) is not bool for flag in flags)
    ):
        raise UnsupportedModel(
            f"config.json: is_moe_layer should list true or false for each of {layers} layers"
        )
    if kinds is None:
        dense = fields.count("first_k_dense_replace", 1, low=0)
        return tuple(flags or (i >= dense for i in range(layers)))
    sparse = tuple(kind == "sparse" for kind in kinds)
    if flags is not None and tuple(flags) != sparse:
        raise UnsupportedModel("config.json: is_moe_layer and mlp_layer_types contradict each other")
    return sparse


def _hunyuan(fields: Fields) -> Config:
    shape = read_shape(fields, eps=1e-5, num_key_value_heads=8, head_dim=128, max_position_embeddings=131072)
    layers = layer_count(fields, 80)
    true = ("qk_norm", "route_norm", "moe_router_use_sigmoid", "moe_router_enable_expert_bias")
    fields.only(dict.fromkeys(true, True) | {"mlp_bias": False})
    fields.count("first_k_dense_replace", 1, high=1)  # in published files; transformers looks at the next one
    kinds = fields.words("mlp_layer_types", layers, ("dense", "sparse"))
    bias = fields.flag("attention_bias")
    experts = fields.count("num_experts", 192, high=1 << 16)
    inner = fields.count("moe_intermediate_size", 1536, high=1 << 22)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape, theta=11158840.0),) * layers,
        head_norm=True,
        qkv_bias=bias,
        output_bias=bias,
        sparse=tuple(i > 0 for i in range(layers)) if kinds is None else tuple(k == "sparse" for k in kinds),
        mixture=MixtureSpec(
            experts=experts,
            chosen=fields.count("num_experts_per_tok", 8, high=experts),
            inner=inner,
            shared=inner * fields.count("num_shared_experts", 1, high=1 << 10),
            scale=fields.number("router_scaling_factor", 2.826),
        ),
    )


def _mixture(
    fields: Fields,
    *,
    experts: int,
    chosen: int,
    inner: int,
    shared: int,
    normalize: bool,
    scale: float = 1.0,
) -> MixtureSpec:
    """inner, normalize, scale: where the file does not say."""
    # dots.llm1 writes the name of the method where the others name the function.
    fields.choice("scoring_func", ("sigmoid", "noaux_tc"), "sigmoid")
    fields.choice("topk_method", ("noaux_tc",), "noaux_tc")
    groups, top_groups = read_groups(fields, experts, chosen)
    inner = fields.count("moe_intermediate_size", inner, high=1 << 22)
    return MixtureSpec(
        experts=experts,
        chosen=chosen,
        inner=inner,
        shared=inner * shared,
        groups=groups,
        top_groups=top_groups,
        normalize=fields.flag("norm_topk_prob", normalize),
        scale=fields.number("routed_scaling_factor", scale),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [
        PreNorm(_attention(config, rope), feed_forward(config, sparse=sparse), norm)
        for rope, sparse in zip(layer_ropes(config), config.sparse, strict=True)
    ]
    return CausalLM(config, layers, norm())


def _attention(config: Config, rope: Rope | None) -> SelfAttention:
    biases = {"qkv_bias": config.qkv_bias, "output_bias": config.output_bias}
    return self_attention(config, rope, head_norm=config.head_norm, **biases)


_MODULES = ((".mlp.router.gate.", ".mlp.gate."), (".mlp.shared_mlp.", ".mlp.shared_experts."))
_RENAMED = (
    (".mlp.e_score_correction_bias", ".mlp.gate.e_score_correction_bias"),
    (".mlp.expert_bias", ".mlp.gate.e_score_correction_bias"),
    *_MODULES,
)


def adapt(config: Config, weights: Weights) -> Weights:
    """Files of EXAONE and Hunyuan keep corrections beside the gate, and Hunyuan's have names of its own."""
    kept = without_spares(config, weights)
    return to_switch(respelled(kept, _RENAMED), config.mixture.experts)


def _checkpoint(config: Mapping[str, Any]) -> Checkpoint:
    kind = config.get("model_type")
    if kind == "hy_v3":
        return Checkpoint(heads_behind=True, modules=_MODULES)
    return Checkpoint(experts="experts" if kind == "dots1" else "switch_mlp", heads=("mtp.",))


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    # Hunyuan's routers are stored in 32 bits.
    wide=(*CORRECTIONS, ".gate.weight"),
    checkpoint=_checkpoint,
)
