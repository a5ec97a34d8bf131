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
    arcee aya_vision bamba bert bloom camembert codegen cohere2_moe cohere2_vision cwm deepseek_vl
    deepseek_vl_hybrid diffllama distilbert exaone4_5 falcon fast_vlm flex_olmo
    gemma3n_text gemma4_assistant gemma4_unified_assistant gemma4_unified_text glm46v glm4v glm4v_moe
    glm4v_moe_text glm4v_text got_ocr2 gpt_neo granite_speech granite_swa granitemoe_swa granitemoeshared
    hunyuan_v1_moe hy_v3 hyperclovax idefics2 idefics3 internvl internvl_chat jais2 janus lfm2_vl lfm3
    lfm3_vl lighton_ocr llava_next llava_next_video llava_onevision ministral mllama mllama_text_model
    modernbert mpnet mpt mt5 muse_glimmer_assistant muse_glimmer_text nomic_bert opt ovis2 persimmon
    qwen2_audio qwen3_5_moe_text qwen3_5_text qwen3_vl_moe_text roberta smolvlm step3p7 t5 t5gemma umt5
    vaultgemma video_llama_3 video_llava vipllava voxtral xglm xlm-roberta youtu zamba2
"""
UNKNOWN = frozenset(_UNKNOWN.split())


# Sentences that `export --form mlx-lm` can take back (`mlx_lm.mends`).
OWN_HEAD = "it wants an output head of its own, and this model's is the embedding"
PACKED_HEAD = "it cannot use a packed embedding for the output head"
BARE = "it knows the tensors without transformer. before their names"
UNNAMED = "it knows the tensors with model. before their names"
QUADRUPLE = "its MLPs are four times as wide as the hidden state"
BIASED = "its attention has biases"
BIASED_ALL = "its projections have biases"
SCALED = "it wants a scaled rope"
NEIGHBOURS = "it rotates neighbouring pairs always"
KEYS = "it leaves out key_multiplier"
NO_TYPE = "it has no such model type"
ONLY_LLAMA = "it takes every text model for a Llama"
NO_EXPERTS = "its class of that name has no experts"
TOWER = "it does not leave out the vision tower"
ATTENTION_FACTOR = "it reads no attention_factor"
NORMS = "it calls the norms otherwise"
MATRICES = "it calls matrices in place of sublayers otherwise"
INPUT_FIRST = "it reads experts input first, as published; transformers 5 saves them output first"
INNER = "it takes intermediate_size for the MLP's size"
FIRST_MLP = "it calls the first MLP otherwise"
PACKED_SHARED = "it leaves the scales of shared experts under the checkpoint's names"
STACKED = "it leaves stacked experts under the checkpoint's names"
UNBIASED_STATES = "its state layers' projections have no biases"
STATE_GROUPS = "it norms the groups of a state together"
GROUPS = "it may ask experts of closed groups where corrected scores are below zero"
PACKED_TWICE = "it packs kv_b_proj once more, which rounds it a second time"
PACKED_EXPERTS = "it knows packed experts only; create with -q"


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that mlx-lm is known to compute otherwise."""

    families: tuple[str, ...]
    """Model types, of the whole or of its text tower; () for all."""
    when: When
    """Asked of that block of the config and of the names of the package's tensors."""
    says: str
    """The sentence for the user."""
    risk: bool = False
    """Does it depend on the weights or on the text? If not: mlx-lm refuses it, or computes other logits."""
    alone: bool = False
    """Is it said only where the whole config is of that type, not of a wrapper's text model?"""


def limits(config: Mapping[str, Any], names: Collection[str]) -> tuple[Limit, ...]:
    """The rows that hold for a package with this config and these tensors."""
    kind = config.get("model_type")
    if kind in UNKNOWN:
        return (Limit((str(kind),), _ever, NO_TYPE),)
    return tuple(
        row
        for row in ROWS
        if any(
            (not row.families or block.get("model_type") in row.families) and row.when(block, names)
            for _, block in (levels(config)[:1] if row.alone else levels(config))
        )
    )


def sentences(config: Mapping[str, Any], rows: Collection[Limit]) -> tuple[str, ...]:
    """What is said of a package with this config of which these rows hold."""
    kind = config.get("model_type")
    return tuple(
        f"mlx-lm {RELEASE} {'may compute' if row.risk else 'does not compute'} this {kind} "
        f"{'otherwise' if row.risk else 'as it is'}: {row.says}"
        for row in rows
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


def _ordered(_block: Block, names: Collection[str]) -> bool:
    """Other tensors may be called so; these are beside codes."""
    modules = [name.removesuffix(".order") for name in names if name.endswith(".order")]
    return any(f"{module}.scales" in names for module in modules)


def _packed_shared(_block: Block, names: Collection[str]) -> bool:
    """Some of their matrices may be too narrow to be packed."""
    return any(".block_sparse_moe.shared_experts." in name and name.endswith(".scales") for name in names)


def _rope(block: Block) -> Block:
    rope = block.get("rope_scaling") or block.get("rope_parameters")
    return rope if isinstance(rope, Mapping) else {}


def _scaled(block: Block, _names: Collection[str]) -> bool:
    rope = _rope(block)
    return (rope.get("rope_type") or rope.get("type") or "default") != "default"


def _unscaled(block: Block, names: Collection[str]) -> bool:
    return not _scaled(block, names)


def _turns_a_part(block: Block, _names: Collection[str]) -> bool:
    """Half of each head, where nothing is said."""
    return block.get("partial_rotary_factor", _rope(block).get("partial_rotary_factor", 0.5)) != 1


def _shares_choices(block: Block, names: Collection[str]) -> bool:
    said: Any = block.get("indexer_types") or block.get("index_topk_pattern")
    if said:
        return "shared" in said or "S" in said
    return _above_one("index_topk_freq")(block, names)


def _slides(block: Block, _names: Collection[str]) -> bool:
    window, length = block.get("sliding_window"), block.get("max_position_embeddings")
    if type(window) is not int or block.get("use_sliding_window") is False:
        return False
    kinds = block.get("layer_types")
    if isinstance(kinds, list) and "sliding_attention" not in kinds:
        return False
    return type(length) is not int or window < length


def _unlike_64(block: Block, _names: Collection[str]) -> bool:
    size, eps = block.get("head_dim", 64), block.get("norm_eps", 1e-5)
    return type(size) is not int or not isinstance(eps, float) or abs(size * eps - 64e-5) > 1e-9


def _attends_by_window(block: Block, _names: Collection[str]) -> bool:
    window, length = block.get("attention_window_size", 2048), block.get("max_position_embeddings")
    return type(window) is not int or type(length) is not int or window < length


def _slides_by_plamo(block: Block, _names: Collection[str]) -> bool:
    window, length = block.get("window_size"), block.get("max_position_embeddings")
    return type(window) is not int or type(length) is not int or window < length


def _packed(block: Block, _names: Collection[str]) -> bool:
    return "quantization" in block


def _differs(field: str, *values: Any) -> When:
    """Is it there, and none of these?"""
    return lambda block, _names: block.get(field) is not None and block[field] not in values


def _irregular(field: str, interval: str | int, kinds: tuple[Any, Any]) -> When:
    """Is a list of layers' kinds another than the second kind at every `interval`, and the first between?"""

    def when(block: Block, _names: Collection[str]) -> bool:
        listed, every = block.get(field), block.get(interval, 4) if isinstance(interval, str) else interval
        if not isinstance(listed, list) or type(every) is not int or every < 1:
            return False
        return listed != [kinds[(place + 1) % every == 0] for place in range(len(listed))]

    return when


def _normed_groups(block: Block, names: Collection[str]) -> bool:
    return block.get("mamba_rms_norm") is True and _above_one("mamba_n_groups")(block, names)


def _other_inner(block: Block, _names: Collection[str]) -> bool:
    return block.get("intermediate_size") != 4 * int(block.get("hidden_size") or 0)


def _other_n_inner(block: Block, _names: Collection[str]) -> bool:
    return block.get("n_inner") not in (None, 4 * int(block.get("n_embd") or 0))


def _named_other(*known: str) -> When:
    """Is the activation another one?"""
    return lambda block, _names: block.get("activation_function") not in (None, *known)


def _other_values(block: Block, _names: Collection[str]) -> bool:
    wide = int(block.get("hidden_size") or 0) // int(block.get("num_attention_heads") or 1)
    return block.get("v_head_dim") not in (None, wide)


def _other_heads(block: Block, _names: Collection[str]) -> bool:
    wide, heads = int(block.get("hidden_size") or 0), int(block.get("num_attention_heads") or 1)
    return block.get("head_dim") not in (None, wide // heads)


def _dense_granite(block: Block, _names: Collection[str]) -> bool:
    inner = block.get("shared_intermediate_size")
    return not block.get("num_local_experts") and inner != block.get("intermediate_size")


def _no_silu(block: Block, _names: Collection[str]) -> bool:
    return block.get("hidden_act") not in (None, "silu", "swish")


def _tied_and_packed(block: Block, _names: Collection[str]) -> bool:
    return block.get("tie_word_embeddings", True) is True and "quantization" in block


def _other_gelu(block: Block, _names: Collection[str]) -> bool:
    return block.get("hidden_act") not in (None, "gelu_new", "gelu_pytorch_tanh")


def _block(block: Block, name: str) -> Block:
    inner = block.get(name)
    return inner if isinstance(inner, Mapping) else {}


def _unsaid(name: str, *fields: str) -> When:
    """Is one of these fields of that inner block not there, or null?"""
    return lambda block, _names: any(_block(block, name).get(field) is None for field in fields)


def _unnormed(block: Block, _names: Collection[str]) -> bool:
    return _block(block, "ffn_config").get("moe_normalize_expert_weights", 1) is None


def _other_experts(block: Block, _names: Collection[str]) -> bool:
    return _block(_block(block, "ffn_config"), "ffn_act_fn").get("name", "silu") not in ("silu", "swish")


# Their classes have the family's own activation and look at no other.
_SILU = """
    afmoe bailing_moe cohere cohere2 deepseek deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5
    ernie4_5_moe exaone exaone4 exaone_moe glm glm4 glm4_moe glm4_moe_lite granite granitemoe helium
    hunyuan_v1_dense internlm2 laguna llama mellum mimo minicpm minicpm3 minimax_m2 ministral3 mistral
    mistral4 mixtral olmo2 olmo3 olmoe phi3 phimoe qwen2 qwen2_5_vl_text qwen2_moe qwen3 qwen3_moe
    qwen3_vl_text seed_oss smollm3 solar_open stablelm youtu_llm
"""
_UNBIASED = """
    afmoe apertus dots1 gemma kimi_linear laguna mellum mimo_v2_flash muse_glimmer_text qwen3_moe
    recurrent_gemma step3p5
"""
_WINDOWLESS = """
    dots1 gemma2 mimo ministral3 mistral mixtral phi3 qwen2 qwen2_moe qwen3 qwen3_moe starcoder2
"""
_WINDOW = "it has no sliding window here, so long texts are read otherwise"
NO_BIAS = "its attention has no biases"
_TIED = "its output head is the embedding"
_OF_ROUTERS = ("topk_method", "scoring_func", "moe_layer_freq")
_OF_LONGCAT = ("attention_method", "zero_expert_type", "mla_scale_q_lora", "mla_scale_kv_lora")
_FOURTH = "every fourth of its layers is one without positions"
_SCORED = ("deepseek_v3", "deepseek_v32", "dots1", "exaone_moe", "glm4_moe", "glm4_moe_lite", "mimo_v2_flash")

ROWS: tuple[Limit, ...] = (
    Limit(("RefinedWeb", "RefinedWebModel"), _ever, NO_TYPE),
    Limit(
        tuple(_UNBIASED.split()),
        _is("attention_bias", True),
        NO_BIAS,
    ),
    Limit(tuple(_SILU.split()), _no_silu, "it computes silu always"),
    Limit(("cohere", "gpt2", "lfm2_moe"), _is("tie_word_embeddings", False), _TIED),
    Limit(("cohere2", "gemma", "gemma2", "gemma3n", "lfm2"), _named("lm_head."), _TIED),
    Limit(
        ("glm4", "glm4_moe", "helium", "longcat_flash", "solar_open", "stablelm"),
        _is("tie_word_embeddings", True),
        OWN_HEAD,
    ),
    Limit(
        tuple(_WINDOWLESS.split()),
        _slides,
        _WINDOW,
    ),
    Limit(("rwkv7",), _unlike_64, "the norms of its heads take what suits heads of 64 and norm_eps of 1e-5"),
    Limit(
        ("longcat_flash",),
        lambda block, _names: any(block.get(name) is None for name in _OF_LONGCAT),
        f"it wants {', '.join(_OF_LONGCAT[:-1])} and {_OF_LONGCAT[-1]} in config.json",
    ),
    Limit(("longcat_flash",), _ever, "norms of its queries and latents add 1e-5 to the square, not 1e-6"),
    Limit(
        ("step3p5",),
        lambda block, _names: block.get("num_attention_groups") is None,
        "it knows published files' fields alone (num_attention_groups, rope_theta by layer, ...)",
    ),
    Limit(("bitnet",), _ever, "it takes packed weights alone, and its kernels are for Metal"),
    Limit(("plamo3",), _slides_by_plamo, "prompts see one token more than its window"),
    Limit(("plamo2",), _attends_by_window, _WINDOW),
    Limit(
        ("bailing_moe", "bailing_moe_linear", *_SCORED, "solar_open"),
        _above_one("n_group"),
        GROUPS,
        risk=True,
    ),
    Limit(
        ("bailing_hybrid",),
        _differs("architectures", ["BailingMoeV3ForCausalLM"]),
        "its class of that name is Ling 2.5's",
    ),
    Limit(
        ("bailing_moe_linear",),
        _above_one("layer_group_size"),
        "its first layer forgets as fast as the second, and faster in the authors' code",
    ),
    Limit(("kimi_linear",), _above_one("num_expert_group"), GROUPS, risk=True),
    Limit(
        ("bailing_moe",),
        lambda block, names: block.get("norm_head") is True and "lm_head.scales" in names,
        "it scales the codes of a packed head, too",
    ),
    Limit(("deepseek",), _is("tie_word_embeddings", True), OWN_HEAD),
    Limit(
        ("deepseek",), _is("norm_topk_prob", True), "it leaves the weights of the chosen experts as they are"
    ),
    Limit(
        ("deepseek",),
        lambda block, _names: bool(_rope(block)) and "type" not in _rope(block),
        "it wants the type of a scaled rope under its older name",
    ),
    Limit(
        ("internlm2",),
        lambda block, _names: bool(_rope(block)) and _rope(block).get("type") not in ("dynamic", "linear"),
        "it knows no scaled rope but a linear and a dynamic one, told under its older name",
    ),
    Limit(("exaone",), _other_heads, "its heads share the hidden state among them"),
    Limit(("deepseek_v2",), _unscaled, SCALED),
    Limit(
        ("deepseek_v3", "deepseek_v32", "glm4_moe_lite", "kimi_linear", "mistral4"),
        _named("self_attn.kv_b_proj.scales"),
        PACKED_TWICE,
    ),
    Limit(("deepseek_v3", "youtu_llm"), _is("rope_interleave", False), NEIGHBOURS),
    Limit(
        ("youtu_llm",),
        lambda block, _names: bool(_rope(block).get("mscale_all_dim")),
        "it does not scale scores by YaRN's mscale_all_dim",
    ),
    Limit(("dbrx", "glm4_moe", "helium", "solar_open"), _scaled, "it leaves the rope unscaled"),
    Limit(("dbrx",), _other_experts, "it computes silu always"),
    Limit(("dbrx",), _unnormed, "it divides the weights of experts by their sum always"),
    Limit(
        ("dbrx",),
        _unsaid("attn_config", "kv_n_heads", "clip_qkv", "rope_theta"),
        "it asks for kv_n_heads, clip_qkv and rope_theta in attn_config",
    ),
    Limit(
        ("dbrx",),
        _unsaid("ffn_config", "ffn_hidden_size", "moe_num_experts", "moe_top_k"),
        "it asks for ffn_hidden_size, moe_num_experts and moe_top_k in ffn_config",
    ),
    Limit(("dbrx",), _named(".ffn.switch_mlp."), STACKED),
    Limit(("glm",), _turns_a_part, "it rotates whole heads"),
    Limit(
        ("glm_moe_dsa",),
        lambda block, _names: any(block.get(name) is None for name in _OF_ROUTERS),
        f"it wants {_OF_ROUTERS[0]}, {_OF_ROUTERS[1]} and {_OF_ROUTERS[2]} in config.json",
    ),
    Limit(("glm_moe_dsa",), _shares_choices, "it has an indexer in every layer"),
    Limit(("ernie4_5_moe",), _ever, "it leaves out the correction of the choice of experts"),
    Limit(("falcon_h1",), _differs("key_multiplier", 1), KEYS),
    Limit(("falcon_h1",), _packed, "it multiplies numbers of the config into packed matrices' codes"),
    Limit(("falcon_h1",), _normed_groups, STATE_GROUPS),
    Limit(("jamba",), _ever, "it weighs experts by a softmax over the chosen ones, not over all"),
    Limit(("gpt2",), _named("transformer.h."), BARE),
    Limit(
        ("llama", "mistral", "qwen2", "qwen3"),
        lambda _block, names: bool(names) and not any("model." in name for name in names),
        UNNAMED,
    ),
    Limit(
        ("llama", "mistral", "qwen2", "qwen3"),
        lambda block, _names: block.get("architectures") in _BARE and not block.get("tie_word_embeddings"),
        "it wants an output head, and this model has none",
    ),
    Limit(("gpt_bigcode",), _is("n_inner", None), "it asks for n_inner"),
    Limit(("gpt_bigcode",), _is("multi_query", False), "it has queries, keys and values in another order"),
    Limit(("gpt_bigcode",), _is("scale_attn_weights", False), "it scales scores always"),
    Limit(("gpt_bigcode",), _named_other("gelu", "gelu_new", "gelu_pytorch_tanh"), "it computes gelu always"),
    Limit(("gptj",), _named_other("gelu_new", "gelu_pytorch_tanh"), "it computes gelu_new always"),
    Limit(("gptj",), _other_n_inner, QUADRUPLE),
    Limit(("gpt_neox",), _other_inner, QUADRUPLE),
    Limit(("gpt_neox",), _is("attention_bias", False), BIASED),
    Limit(("gpt_neox",), _is("tie_word_embeddings", True), OWN_HEAD),
    Limit(
        ("gpt_oss",),
        lambda block, _names: "quantization" not in block,
        PACKED_EXPERTS,
    ),
    Limit(
        ("gpt_oss",), lambda block, _names: _rope(block).get("truncate") is False, "it truncates YaRN's ramp"
    ),
    Limit(("granitemoehybrid",), _above_one("mamba_n_groups"), STATE_GROUPS),
    Limit(("granitemoehybrid",), _dense_granite, INNER),
    Limit(("mamba2",), _above_one("n_groups"), STATE_GROUPS),
    Limit(("kimi_linear",), _named(".block_sparse_moe.down_proj."), FIRST_MLP),
    Limit(("kimi_linear",), _packed_shared, PACKED_SHARED),
    Limit(("kimi_linear",), _named(".block_sparse_moe.switch_mlp."), STACKED),
    Limit(("llama4_text",), _ever, NO_EXPERTS, alone=True),
    Limit(("minimax",), _ever, "its class of that name is MiniMax M2's", alone=True),
    Limit(("llama4_text",), _is("attention_bias", True), NO_BIAS, alone=True),
    Limit(("llama4_text",), _above_one("num_experts_per_tok"), "it asks one expert for each token"),
    Limit(("llama4_text",), _irregular("no_rope_layers", 4, (1, 0)), _FOURTH),
    Limit(
        (*("qwen3_5_text", "qwen3_5_moe_text"), *("qwen3_5", "qwen3_5_moe")),
        _irregular("layer_types", "full_attention_interval", ("linear_attention", "full_attention")),
        "it has full attention at regular intervals",
    ),
    Limit(
        ("gpt_oss",),
        lambda block, names: (
            _differs("swiglu_alpha", 1.702)(block, names) or _differs("swiglu_limit", 7)(block, names)
        ),
        "it computes swiglu by 1.702, with a limit of 7",
    ),
    Limit(
        ("afmoe", "mellum"),
        lambda block, _names: "full_attention" not in (block.get("layer_types") or ("full_attention",)),
        "it looks for a layer of full_attention",
    ),
    Limit(("afmoe",), _is("num_experts_per_tok", 1), "it leaves the weight of a lone expert as it is"),
    Limit(
        ("mellum",),
        lambda block, _names: "dense" in (block.get("mlp_layer_types") or ()),
        "all of its layers have experts",
    ),
    Limit(
        ("minicpm", "minicpm3"), _is("tie_word_embeddings", True), "it does not scale what a tied head reads"
    ),
    Limit(("minicpm3",), _is("q_lora_rank", None), "it makes queries in two steps always"),
    Limit(("minicpm3",), _is("mlp_bias", True), "its MLPs have no biases"),
    Limit(("minicpm3",), _other_values, "its values are as wide as hidden_size over the heads"),
    Limit(
        ("minicpm3",),
        lambda block, _names: "long_factor" not in _rope(block),
        "it knows no rotation but LongRoPE",
    ),
    Limit(("muse_glimmer",), _named("vision"), TOWER),
    Limit(("llava",), _ever, ONLY_LLAMA, risk=True),
    Limit(("nemotron_h",), _is("use_bias", True), UNBIASED_STATES),
    Limit(("nemotron-nas",), _named(".linear_"), MATRICES),
    Limit(
        ("olmo3",),
        lambda block, _names: _rope(block).get("attention_factor") is not None,
        ATTENTION_FACTOR,
    ),
    Limit(("gpt_oss",), _is("attention_bias", False), BIASED),
    Limit(("seed_oss",), _tied_and_packed, PACKED_HEAD),
    Limit(("olmo_hybrid",), _named(".attention_layer_norm."), NORMS),
    Limit(
        ("openelm",),
        lambda block, _names: block.get("activation_fn_name") not in (None, "silu", "swish"),
        "it computes silu always",
    ),
    Limit(("olmo",), _ever, "its class reads the layout of ai2-olmo alone"),
    Limit(("nanochat",), _ever, "its class reads the layout of nanochat's own files alone"),
    Limit(("olmoe",), _set("clip_qkv"), "it leaves out clip_qkv"),
    Limit(
        ("minicpm", "minicpm3", "phi3", "phimoe"),
        lambda block, _names: "long_factor" in _rope(block),
        "it takes LongRoPE's long factors for short texts too",
        risk=True,
    ),
    Limit(("phi",), _is("qk_layernorm", True), "it has no norms of queries and keys"),
    Limit(("phi",), _other_gelu, "it computes gelu_new always"),
    Limit(
        ("qwen3_vl_moe",),
        _ever,
        INPUT_FIRST,
        risk=True,
    ),
    Limit(("recurrent_gemma",), _above_one("num_key_value_heads"), "it has one head of keys and values"),
    Limit(("starcoder2",), _is("use_bias", False), BIASED_ALL),
    Limit((), _ordered, "it has no place for the order of a matrix's inputs (X.order, of GPTQ's act-order)"),
)
