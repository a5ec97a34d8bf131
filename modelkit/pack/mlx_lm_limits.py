"""What mlx-lm does otherwise with a package that it is given, as data: said when one is exported.

Every row was found by loading tiny checkpoints of each family with mlx-lm 0.32.2 and comparing its logits
with transformers'; docs/export.md has the outcome. A row that is no `risk` means that mlx-lm refuses the
model or computes other logits; a risk depends on the weights or on the text. No row: it computes the same.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from runtime.models.names import HEADLESS
from runtime.models.wrapper import levels
from runtime.records import dataclass

RELEASE = "0.32.2"

_BARE = [[name] for name in HEADLESS.values()]
Block = Mapping[str, Any]
When = Callable[[Block, Collection[str]], bool]

# Model types that the runtime has and mlx-lm does not.
_UNKNOWN = """
    bamba bert camembert cohere2_moe distilbert gemma3n_text gemma4_assistant gemma4_unified_assistant
    gemma4_unified_text granitemoeshared lfm2_vl mllama mllama_text_model modernbert mpnet mt5
    muse_glimmer_assistant muse_glimmer_text nomic_bert qwen3_5_moe_text qwen3_5_text qwen3_vl_moe_text
    roberta t5 t5gemma umt5 xlm-roberta zamba2
"""
UNKNOWN = frozenset(_UNKNOWN.split())


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that mlx-lm is known to compute otherwise."""

    families: tuple[str, ...]
    """Model types, of the whole or of its text tower."""
    when: When
    """Asked of that block of the config and of the names of the package's tensors."""
    says: str
    """The sentence for the user."""
    risk: bool = False
    """Does it depend on the weights or on the text? If not: mlx-lm refuses it, or computes other logits."""


def limits(config: Mapping[str, Any], names: Collection[str]) -> tuple[Limit, ...]:
    """The rows that hold for a package with this config and these tensors."""
    kind = config.get("model_type")
    if kind in UNKNOWN:
        return (Limit((str(kind),), _ever, "it has no such model type"),)
    blocks = [block for _, block in levels(config)]
    return tuple(
        row
        for row in ROWS
        if any(block.get("model_type") in row.families and row.when(block, names) for block in blocks)
    )


def notes(config: Mapping[str, Any], names: Collection[str]) -> tuple[str, ...]:
    """A sentence for each of them."""
    kind = config.get("model_type")
    return tuple(
        f"mlx-lm {RELEASE} {'may compute' if row.risk else 'does not compute'} this {kind} "
        f"{'otherwise' if row.risk else 'as it is'}: {row.says}"
        for row in limits(config, names)
    )


def _ever(_block: Block, _names: Collection[str]) -> bool:
    return True


def _is(field: str, value: Any) -> When:
    return lambda block, _names: block.get(field) == value


def _set(field: str) -> When:
    return lambda block, _names: block.get(field) is not None


def _above_one(field: str) -> When:
    return lambda block, _names: type(block.get(field)) is int and block[field] > 1


def _named(part: str) -> When:
    return lambda _block, names: any(part in name for name in names)


def _rope(block: Block) -> Block:
    rope = block.get("rope_scaling") or block.get("rope_parameters")
    return rope if isinstance(rope, Mapping) else {}


def _scaled(block: Block, _names: Collection[str]) -> bool:
    rope = _rope(block)
    return (rope.get("rope_type") or rope.get("type") or "default") != "default"


def _unscaled(block: Block, names: Collection[str]) -> bool:
    return not _scaled(block, names)


def _slides(block: Block, _names: Collection[str]) -> bool:
    window, length = block.get("sliding_window"), block.get("max_position_embeddings")
    if type(window) is not int or block.get("use_sliding_window") is False:
        return False
    kinds = block.get("layer_types")
    if isinstance(kinds, list) and "sliding_attention" not in kinds:
        return False
    return type(length) is not int or window < length


def _other_inner(block: Block, _names: Collection[str]) -> bool:
    return block.get("intermediate_size") != 4 * int(block.get("hidden_size") or 0)


def _dense_granite(block: Block, _names: Collection[str]) -> bool:
    inner = block.get("shared_intermediate_size")
    return not block.get("num_local_experts") and inner != block.get("intermediate_size")


def _no_silu(block: Block, _names: Collection[str]) -> bool:
    return block.get("hidden_act") not in (None, "silu", "swish")


def _tied_and_packed(block: Block, _names: Collection[str]) -> bool:
    return block.get("tie_word_embeddings", True) is True and "quantization" in block


def _other_gelu(block: Block, _names: Collection[str]) -> bool:
    return block.get("hidden_act") not in (None, "gelu_new", "gelu_pytorch_tanh")


# Their classes have the family's own activation and look at no other.
_SILU = """
    cohere cohere2 deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5 ernie4_5_moe exaone4 exaone_moe glm4
    glm4_moe glm4_moe_lite granite granitemoe hunyuan_v1_dense laguna llama minimax_m2 ministral3 mistral
    mistral4 mixtral olmo2 olmo3 olmoe phi3 phimoe qwen2 qwen2_5_vl_text qwen2_moe qwen3 qwen3_moe
    qwen3_vl_text seed_oss smollm3 solar_open stablelm
"""
_UNBIASED = """
    apertus dots1 gemma kimi_linear laguna llama4_text mimo_v2_flash muse_glimmer_text qwen3_moe
    recurrent_gemma
"""
_WINDOWLESS = """
    dots1 gemma2 ministral3 mistral mixtral phi3 qwen2 qwen2_moe qwen3 qwen3_moe starcoder2
"""
_WINDOW = "it has no sliding window here, so long texts are read otherwise"
_NO_BIAS = "its attention has no biases"
_GROUPS = "it may ask experts of closed groups where corrected scores are below zero"
_SCORED = ("deepseek_v3", "deepseek_v32", "dots1", "exaone_moe", "glm4_moe", "glm4_moe_lite", "mimo_v2_flash")

ROWS: tuple[Limit, ...] = (
    Limit(
        tuple(_UNBIASED.split()),
        _is("attention_bias", True),
        _NO_BIAS,
    ),
    Limit(tuple(_SILU.split()), _no_silu, "it computes silu always"),
    Limit(
        ("cohere", "gpt2", "lfm2_moe"), _is("tie_word_embeddings", False), "its output head is the embedding"
    ),
    Limit(
        ("glm4", "glm4_moe", "solar_open", "stablelm"),
        _is("tie_word_embeddings", True),
        "it wants an output head of its own, and this model's is the embedding",
    ),
    Limit(
        tuple(_WINDOWLESS.split()),
        _slides,
        _WINDOW,
    ),
    Limit((*_SCORED, "solar_open"), _above_one("n_group"), _GROUPS, risk=True),
    Limit(("deepseek_v2",), _unscaled, "it wants a scaled rope"),
    Limit(("deepseek_v3",), _is("rope_interleave", False), "it rotates neighbouring pairs always"),
    Limit(("glm4_moe", "solar_open"), _scaled, "it leaves the rope unscaled"),
    Limit(("ernie4_5_moe",), _ever, "it leaves out the correction of the choice of experts"),
    Limit(("falcon_h1",), _ever, "it leaves out key_multiplier"),
    Limit(("jamba",), _ever, "it weighs experts by a softmax over the chosen ones, not over all"),
    Limit(
        ("gpt2",), _named("transformer.h."), "it knows the tensors without transformer. before their names"
    ),
    Limit(
        ("llama", "mistral", "qwen2", "qwen3"),
        lambda _block, names: bool(names) and not any("model." in name for name in names),
        "it knows the tensors with model. before their names",
    ),
    Limit(
        ("llama", "mistral", "qwen2", "qwen3"),
        lambda block, _names: block.get("architectures") in _BARE and not block.get("tie_word_embeddings"),
        "it wants an output head, and this model has none",
    ),
    Limit(("gpt_neox",), _other_inner, "its MLPs are four times as wide as the hidden state"),
    Limit(("gpt_neox",), _is("attention_bias", False), "its attention has biases"),
    Limit(("gpt_neox",), _is("tie_word_embeddings", True), "it wants an output head of its own"),
    Limit(
        ("gpt_oss",),
        lambda block, _names: "quantization" not in block,
        "it knows packed experts only; create with -q",
    ),
    Limit(
        ("gpt_oss",), lambda block, _names: _rope(block).get("truncate") is False, "it truncates YaRN's ramp"
    ),
    Limit(("granitemoehybrid",), _above_one("mamba_n_groups"), "it norms the groups of a state together"),
    Limit(("granitemoehybrid",), _dense_granite, "it takes intermediate_size for the MLP's size"),
    Limit(("mamba2",), _above_one("n_groups"), "it norms the groups of a state together"),
    Limit(("kimi_linear",), _named(".block_sparse_moe.down_proj."), "it calls the first MLP otherwise"),
    Limit(("llama4_text",), _ever, "its class of that name has no experts"),
    Limit(("muse_glimmer",), _named("vision"), "it does not leave out the vision tower"),
    Limit(("nemotron_h",), _is("use_bias", True), "its state layers' projections have no biases"),
    Limit(
        ("olmo3",),
        lambda block, _names: _rope(block).get("attention_factor") is not None,
        "it reads no attention_factor",
    ),
    Limit(("gpt_oss",), _is("attention_bias", False), "its attention has biases"),
    Limit(("seed_oss",), _tied_and_packed, "it cannot use a packed embedding for the output head"),
    Limit(("olmo_hybrid",), _named(".attention_layer_norm."), "it calls the norms otherwise"),
    Limit(("olmoe",), _set("clip_qkv"), "it leaves out clip_qkv"),
    Limit(
        ("phi3", "phimoe"),
        lambda block, _names: "long_factor" in _rope(block),
        "it takes LongRoPE's long factors for short texts too",
        risk=True,
    ),
    Limit(("phi",), _is("qk_layernorm", True), "it has no norms of queries and keys"),
    Limit(("phi",), _other_gelu, "it computes gelu_new always"),
    Limit(
        ("qwen3_vl_moe",),
        _ever,
        "it reads experts input first, as published; transformers 5 saves them output first",
        risk=True,
    ),
    Limit(("recurrent_gemma",), _above_one("num_key_value_heads"), "it has one head of keys and values"),
    Limit(("starcoder2",), _is("use_bias", False), "its projections have biases"),
)
