"""What has to be written so that mlx-lm computes a model, by the sentence of `limits` it takes back.

Rows are asked in the order in which the sentences hold; what follows from one (another model type) may bring
the next. Each act changes a `Sheet`, and says in a few words what it did, or raises CannotMend: `names` calls
things otherwise, `numbers` moves and multiplies, `added` brings what is missing, `experts` and `latent` turn
stacks and latent heads into the form they have there.
"""

from collections.abc import Callable

from modelkit.pack.mlx_lm import added, experts, latent, names, numbers
from modelkit.pack.mlx_lm import limits as says
from modelkit.pack.mlx_lm.sheet import Sheet
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Mend:
    """A row."""

    families: tuple[str, ...]
    """Model types; () for all of whom the sentence is said."""
    sentence: str
    act: Callable[[Sheet], str]


def find(kinds: frozenset[str], sentence: str) -> Mend | None:
    """The row for a model of these types (of the whole, of its text model) of whom that is said."""
    for row in ROWS:
        if row.sentence == sentence and (not row.families or kinds & set(row.families)):
            return row
    return None


ROWS: tuple[Mend, ...] = (
    Mend((), says.OWN_HEAD, added.head),
    Mend((), says.PACKED_HEAD, added.head),
    Mend((), says.BARE, names.unprefixed),
    Mend((), says.UNNAMED, names.prefixed),
    Mend((), says.QUADRUPLE, added.wider),
    Mend(
        ("gpt_neox",), says.BIASED, added.zero_biases("attention_bias", "query_key_value", "attention.dense")
    ),
    Mend(
        ("gpt_oss",),
        says.BIASED,
        added.zero_biases("attention_bias", *(f"self_attn.{part}_proj" for part in "qkvo")),
    ),
    Mend(
        ("starcoder2",),
        says.BIASED_ALL,
        added.zero_biases(
            "use_bias", *(f"self_attn.{part}_proj" for part in "qkvo"), "mlp.c_fc", "mlp.c_proj"
        ),
    ),
    Mend(("deepseek_v2",), says.SCALED, numbers.scaled_by_one),
    Mend((), says.PACKED_TWICE, latent.apart),
    Mend((), says.GROUPS, numbers.lifted),
    Mend(("deepseek_v3",), says.NEIGHBOURS, numbers.in_pairs),
    Mend(("falcon_h1",), says.KEYS, numbers.multipliers),
    Mend(("gemma3n_text",), says.NO_TYPE, names.gemma3n),
    Mend(("llama4_text",), says.NO_EXPERTS, names.wrapped("llama4", lambda name: f"language_model.{name}")),
    Mend(("muse_glimmer",), says.TOWER, names.without_towers),
    Mend(("olmo3",), says.ATTENTION_FACTOR, numbers.mscale),
    Mend(("olmo_hybrid",), says.NORMS, numbers.delta_nets),
    Mend(("qwen3_5_text",), says.NO_TYPE, names.qwen3_5("qwen3_5")),
    Mend(("qwen3_5_moe_text",), says.NO_TYPE, names.qwen3_5("qwen3_5_moe")),
    Mend(("qwen3_vl_moe",), says.INPUT_FIRST, experts.halves),
    Mend(("granitemoehybrid",), says.INNER, names.inner),
    Mend(("granitemoeshared",), says.NO_TYPE, names.shared),
    Mend((), says.NO_TYPE, names.text_alone),
    Mend((), says.ONLY_LLAMA, names.text_alone),
    Mend(("kimi_linear",), says.FIRST_MLP, names.first_mlp),
    Mend(("mamba2",), says.STATE_GROUPS, added.mamba2),
    Mend(("kimi_linear",), says.PACKED_SHARED, names.own_names("shared_experts", "shared experts")),
    Mend(("kimi_linear",), says.STACKED, names.own_names("switch_mlp", "stacked experts")),
    Mend(("dbrx",), says.STACKED, experts.apart(gate_proj="w1", up_proj="v1", down_proj="w2")),
    Mend(("nemotron-nas",), says.MATRICES, names.matrices),
    Mend(("nemotron_h",), says.UNBIASED_STATES, names.with_biases),
    Mend(("gpt_oss",), says.PACKED_EXPERTS, experts.in_turn),
)
