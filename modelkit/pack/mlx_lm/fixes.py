"""What has to be written so that mlx-lm computes a model, by the sentence of `limits` it takes back.

Rows are asked in the order in which the sentences hold; what follows from one (another model type) may bring
the next. Each act changes a `MutableFolder`, and says in a few words what it did, or raises CannotFix:
`names` calls things otherwise, `numbers` moves and multiplies, `additions` brings what is missing, `experts`
and `latent` turn stacks and latent heads into the form they have there.
"""

from collections.abc import Callable

from modelkit.pack.mlx_lm import additions, experts, latent, names, numbers
from modelkit.pack.mlx_lm import limits as says
from modelkit.pack.mlx_lm.mutable_folder import MutableFolder
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Fix:
    """A row."""

    families: tuple[str, ...]
    """Model types; () for all of whom the sentence is said."""
    sentence: str
    act: Callable[[MutableFolder], str]


def find(kinds: frozenset[str], sentence: str) -> Fix | None:
    """The row for a model of these types (of the whole, of its text model) of whom that is said."""
    for row in ROWS:
        if row.sentence == sentence and (not row.families or kinds & set(row.families)):
            return row
    return None


ROWS: tuple[Fix, ...] = (
    Fix((), says.OWN_HEAD, additions.head),
    Fix((), says.PACKED_HEAD, additions.head),
    Fix((), says.BARE, names.unprefixed),
    Fix((), says.UNNAMED, names.prefixed),
    Fix((), says.QUADRUPLE, additions.wider),
    Fix(
        ("gpt_neox",),
        says.BIASED,
        additions.zero_biases("attention_bias", "query_key_value", "attention.dense"),
    ),
    Fix(
        ("gpt_oss",),
        says.BIASED,
        additions.zero_biases("attention_bias", *(f"self_attn.{part}_proj" for part in "qkvo")),
    ),
    Fix(
        ("starcoder2",),
        says.BIASED_ALL,
        additions.zero_biases(
            "use_bias", *(f"self_attn.{part}_proj" for part in "qkvo"), "mlp.c_fc", "mlp.c_proj"
        ),
    ),
    Fix(("deepseek_v2",), says.SCALED, numbers.scaled_by_one),
    Fix((), says.PACKED_TWICE, latent.apart),
    Fix((), says.GROUPS, numbers.lifted),
    Fix(("deepseek_v3",), says.NEIGHBOURS, numbers.in_pairs),
    Fix(("falcon_h1",), says.KEYS, numbers.multipliers),
    Fix(("gemma3n_text",), says.NO_TYPE, names.gemma3n),
    Fix(("llama4_text",), says.NO_EXPERTS, names.wrapped("llama4", lambda name: f"language_model.{name}")),
    Fix(("muse_glimmer",), says.TOWER, names.without_towers),
    Fix(("olmo3",), says.ATTENTION_FACTOR, numbers.mscale),
    Fix(("olmo_hybrid",), says.NORMS, numbers.delta_nets),
    Fix(("qwen3_5_text",), says.NO_TYPE, names.qwen3_5("qwen3_5")),
    Fix(("qwen3_5_moe_text",), says.NO_TYPE, names.qwen3_5("qwen3_5_moe")),
    Fix(("qwen3_vl_moe",), says.INPUT_FIRST, experts.halves),
    Fix(("granitemoehybrid",), says.INNER, names.inner),
    Fix(("granitemoeshared",), says.NO_TYPE, names.shared),
    Fix((), says.NO_TYPE, names.text_alone),
    Fix((), says.ONLY_LLAMA, names.text_alone),
    Fix(("kimi_linear",), says.FIRST_MLP, names.first_mlp),
    Fix(("mamba2",), says.STATE_GROUPS, additions.mamba2),
    Fix(("kimi_linear",), says.PACKED_SHARED, names.own_names("shared_experts", "shared experts")),
    Fix(("kimi_linear",), says.STACKED, names.own_names("switch_mlp", "stacked experts")),
    Fix(("dbrx",), says.STACKED, experts.apart(gate_proj="w1", up_proj="v1", down_proj="w2")),
    Fix(("nemotron-nas",), says.MATRICES, names.matrices),
    Fix(("nemotron_h",), says.UNBIASED_STATES, names.with_biases),
    Fix(("gpt_oss",), says.PACKED_EXPERTS, experts.in_turn),
)
