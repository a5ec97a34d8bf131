"""The config fields of latent attention as DeepSeek and those who followed spell them."""

from collections.abc import Mapping
from typing import Any

from runtime.config.fields import Fields, whole_heads
from runtime.nn.attention.mla import LatentShape
from runtime.nn.positions.rope_spec import RopeSpec, read_rope, yarn_scale


def read_latent(
    fields: Fields,
    shape: Mapping[str, Any],
    *,
    ranks: tuple[int | None, int] = (1536, 512),
    sizes: tuple[int, int, int] = (128, 64, 128),
    theta: float = 10000.0,
    traditional: bool | None = None,
) -> tuple[LatentShape, RopeSpec]:
    """Its attention, and how the part that carries position is rotated.

    ranks and sizes as `latent_shape` takes them. theta: the base where a file gives none. traditional: do
    neighbours turn together? None: the file says it.
    """
    parameters = fields.rope_parameters(theta=theta)
    latent = latent_shape(fields, shape, parameters, ranks=ranks, sizes=sizes)
    if traditional is None:
        traditional = fields.flag("rope_interleave", True)
    return latent, latent_rope(parameters, shape, latent.position, traditional=traditional)


def latent_shape(
    fields: Fields,
    shape: Mapping[str, Any],
    parameters: Mapping[str, Any],
    *,
    ranks: tuple[int | None, int],
    sizes: tuple[int, int, int],
) -> LatentShape:
    """ranks: of queries (None: they have none) and of the latent; sizes: of content, position and value,
    where a file does not say. parameters: the rope block.
    """
    ranked = fields.raw.get("q_lora_rank", ranks[0]) is not None
    content = fields.count("qk_nope_head_dim", sizes[0], high=4096)
    position = fields.count("qk_rope_head_dim", sizes[1], low=2, high=4096)
    return LatentShape(
        hidden=shape["hidden_size"],
        heads=shape["heads"],
        query_rank=fields.count("q_lora_rank", ranks[0], high=1 << 16) if ranked else None,
        rank=fields.count("kv_lora_rank", ranks[1], high=1 << 16),
        content=content,
        position=position,
        value=fields.count("v_head_dim", sizes[2], high=4096),
        scale=(content + position) ** -0.5 * _temperature(parameters),
        bias=fields.flag("attention_bias"),
    )


def latent_rope(
    parameters: Mapping[str, Any], shape: Mapping[str, Any], position: int, *, traditional: bool
) -> RopeSpec:
    """The reference looks at a share of the rotated part where the rotation is scaled, and then spreads the
    few wavelengths that are left over all of it.
    """
    return read_rope(
        parameters if parameters["rope_type"] == "default" else whole_heads(parameters),
        head_dim=position,
        max_positions=shape["context_length"],
        traditional=traditional,
        partial=1.0,
    )


def _temperature(parameters: Mapping[str, Any]) -> float:
    """What YaRN multiplies scores by, over what it does to the rotated part."""
    block = Fields(parameters)
    if block.raw.get("rope_type", "default") == "default" or not block.raw.get("mscale_all_dim"):
        return 1.0
    return yarn_scale(block.number("factor"), block.number("mscale_all_dim")) ** 2
