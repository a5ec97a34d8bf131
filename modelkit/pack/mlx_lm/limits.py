"""What mlx-lm does otherwise with a package that it is given, as data: said when one is exported.

Every row was found by loading tiny checkpoints of each family with mlx-lm 0.32.2 and comparing its logits
with transformers'; docs/export.md has the outcome. A row that is no `risk` means that mlx-lm refuses the
model or computes other logits; a risk depends on the weights or on the text. No row: it computes the same.
"""

from collections.abc import Collection, Mapping
from typing import Any

from modelkit.pack.mlx_lm import conditions as when
from runtime.config.text import levels
from runtime.models.registry.names import HEADLESS
from runtime.records import dataclass

RELEASE = "0.32.2"

_BARE = [[name] for name in HEADLESS.values()]

# Model types that the runtime has and mlx-lm does not.
_UNKNOWN = """
    PanguEmbedded Yi albert apertus1p5 apertus1p5_text aquila arcee arctic aria aria_text audioflamingo3
    axk1 axk2 aya_vision baichuan bamba bart beam bert blenderbot blenderbot-small bloom btlm camembert
    chameleon chatglm codegen codeshell cohere2_moe cohere2_vision cohere_compass cohere_compass_text
    cwm deci deepseek_v4 deepseek_vl deepseek_vl_hybrid diffllama distilbert doge dory dots3_note
    dots3_note_text electra embedding_gemma2 embedding_gemma2_text emu3 ernie ernie4_5_moe_vl
    ernie4_5_vl_moe ernie4_5_vl_moe_text eurobert exaone4_5 falcon fast_vlm flex_olmo flint fun_asr_nano
    fuyu gemma3n_text gemma4_assistant gemma4_unified_assistant gemma4_unified_text glm46v glm4v
    glm4v_moe glm4v_moe_text glm4v_text glm5_next glm5_next_text glm_ocr glm_ocr_text glmasr glmga
    got_ocr2 gpt_neo granite4_vision granite_docling granite_speech granite_speech_plus granite_swa
    granitemoe_swa granitemoeshared grove_moe gte hunyuan_v1_moe hunyuan_vl hy_v3 hy_v4 hy_v4_vl
    hy_v4_vl_text hyperclovax hyperclovax_vision_v2 idefics2 idefics3 inkling2 inkling2_loop
    inkling2_loop_text inkling2_text inkling_mm_model inkling_text internlm internvl internvl_chat jais
    jais2 janus jetmoe jina_embeddings_v3 kolibri1 kormo lara_mini lfm2_vl lfm3 lfm3_vl lighton_ocr
    llama_bidirec llava_next llava_next_video llava_onevision m2m_100 marian mbart mimo_v2 minicpm_ocr
    minicpmv4_6 minicpmv4_7 minimax_m1 minimax_m3_vl_text minimax_text_01 ministral mistral_large4
    mistral_large4_text mllama mllama_text_model modernbert modernbert-decoder molmo2 molmo2_text
    moss_transcribe_diarize mpnet mpt mt5 muse_glimmer_assistant muse_glimmer_text muse_spark_text
    musicflamingo mvp nemotron_h_omni new nomic_bert omniasr openai-gpt opt orion ouro ovis2
    paddleocr_vl pegasus perception_lm persimmon phi4_multimodal phi4mm plbart plm pp_chart2table
    qianfan_ocr qwen2_5_omni qwen2_5_omni_thinker qwen2_audio qwen3_5_moe_text qwen3_5_text qwen3_asr
    qwen3_omni_moe qwen3_omni_moe_thinker qwen3_vl_moe_text qwen4_exp qwen4_exp_text roberta rwkv rwkv5
    rwkv6 sarvam_mla sarvam_moe smallthinker smolvlm stablelm_epoch step3p7 t5 t5gemma t5gemma2 umt5
    vaultgemma vibevoice_asr video_llama_3 video_llava vipllava voxtral xglm xlm-roberta xlstm youtu
    zamba zamba2 zaya
"""
UNKNOWN = frozenset(_UNKNOWN.split())


# Sentences that `export --form mlx-lm` can take back (`mlx_lm.fixes`).
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
    when: when.When
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
        return (Limit((str(kind),), when.ever, NO_TYPE),)
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


# Their classes have the family's own activation and look at no other.
_SILU = """
    afmoe bailing_moe cohere cohere2 deepseek deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5
    ernie4_5_moe exaone exaone4 exaone_moe glm glm4 glm4_moe glm4_moe_lite granite granitemoe helium
    hunyuan_v1_dense internlm2 laguna llama mellum mimo minicpm minicpm3 minimax_m2 ministral3 mistral
    mistral4 mixtral muse_spark_text olmo2 olmo3 olmoe phi3 phimoe qwen2 qwen2_5_vl_text qwen2_moe qwen3
    qwen3_moe qwen3_vl_text seed_oss smollm3 solar_open stablelm youtu_llm
"""
_UNBIASED = """
    afmoe apertus dots1 gemma kimi_linear laguna mellum mimo_v2_flash muse_glimmer_text muse_spark_text
    qwen3_moe recurrent_gemma step3p5
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
    Limit(("RefinedWeb", "RefinedWebModel"), when.ever, NO_TYPE),
    Limit(
        tuple(_UNBIASED.split()),
        when.equals("attention_bias", True),
        NO_BIAS,
    ),
    Limit(tuple(_SILU.split()), when.no_silu, "it computes silu always"),
    Limit(("cohere", "gpt2", "lfm2_moe"), when.equals("tie_word_embeddings", False), _TIED),
    Limit(("cohere2", "gemma", "gemma2", "gemma3n", "lfm2"), when.named("lm_head."), _TIED),
    Limit(
        ("glm4", "glm4_moe", "helium", "longcat_flash", "solar_open", "stablelm"),
        when.equals("tie_word_embeddings", True),
        OWN_HEAD,
    ),
    Limit(
        tuple(_WINDOWLESS.split()),
        when.slides,
        _WINDOW,
    ),
    Limit(
        ("rwkv7",), when.unlike_64, "the norms of its heads take what suits heads of 64 and norm_eps of 1e-5"
    ),
    Limit(
        ("longcat_flash",),
        lambda block, _names: any(block.get(name) is None for name in _OF_LONGCAT),
        f"it wants {', '.join(_OF_LONGCAT[:-1])} and {_OF_LONGCAT[-1]} in config.json",
    ),
    Limit(("longcat_flash",), when.ever, "norms of its queries and latents add 1e-5 to the square, not 1e-6"),
    Limit(
        ("longcat_flash_ngram",), when.ever, "tokens behind an end of text see n-grams before it", risk=True
    ),
    Limit(
        ("step3p5",),
        lambda block, _names: block.get("num_attention_groups") is None,
        "it knows published files' fields alone (num_attention_groups, rope_theta by layer, ...)",
    ),
    Limit(("muse_spark",), when.ever, "its kernels are for Metal"),
    Limit(
        ("muse_spark_text",),
        lambda block, _names: "dense" in (block.get("mlp_layer_types") or ()),
        "all of its layers have experts",
    ),
    Limit(("bitnet",), when.ever, "it takes packed weights alone, and its kernels are for Metal"),
    Limit(
        ("bailing_hybrid",),
        when.is_set("group_norm_size"),
        "its linear layers forget as the next ones do, as the authors count them",
    ),
    Limit(("kimi_vl",), when.named("kv_b_proj"), "it leaves kv_b_proj as it is called here", alone=True),
    Limit(("phi3small",), when.ever, "tokens of a prompt see later ones of their blocks"),
    Limit(("plamo3",), when.slides_by_plamo, "prompts see one token more than its window"),
    Limit(("plamo2",), when.attends_by_window, _WINDOW),
    Limit(
        ("bailing_moe", "bailing_moe_linear", *_SCORED, "solar_open"),
        when.above_one("n_group"),
        GROUPS,
        risk=True,
    ),
    Limit(
        ("bailing_hybrid",),
        when.differs("architectures", ["BailingMoeV3ForCausalLM"]),
        "its class of that name is Ling 2.5's",
    ),
    Limit(
        ("bailing_moe_linear",),
        when.above_one("layer_group_size"),
        "its first layer forgets as fast as the second, and faster in the authors' code",
    ),
    Limit(("kimi_linear",), when.above_one("num_expert_group"), GROUPS, risk=True),
    Limit(
        ("bailing_moe",),
        lambda block, names: block.get("norm_head") is True and "lm_head.scales" in names,
        "it scales the codes of a packed head, too",
    ),
    Limit(("deepseek",), when.equals("tie_word_embeddings", True), OWN_HEAD),
    Limit(
        ("deepseek",),
        when.equals("norm_topk_prob", True),
        "it leaves the weights of the chosen experts as they are",
    ),
    Limit(
        ("deepseek",),
        lambda block, _names: bool(when.rope_of(block)) and "type" not in when.rope_of(block),
        "it wants the type of a scaled rope under its older name",
    ),
    Limit(
        ("internlm2",),
        lambda block, _names: (
            bool(when.rope_of(block)) and when.rope_of(block).get("type") not in ("dynamic", "linear")
        ),
        "it knows no scaled rope but a linear and a dynamic one, told under its older name",
    ),
    Limit(("exaone",), when.other_heads, "its heads share the hidden state among them"),
    Limit(("deepseek_v2",), when.unscaled, SCALED),
    Limit(
        ("deepseek_v3", "deepseek_v32", "glm4_moe_lite", "kimi_linear", "mistral4"),
        when.named("self_attn.kv_b_proj.scales"),
        PACKED_TWICE,
    ),
    Limit(("deepseek_v3", "youtu_llm"), when.equals("rope_interleave", False), NEIGHBOURS),
    Limit(
        ("youtu_llm",),
        lambda block, _names: bool(when.rope_of(block).get("mscale_all_dim")),
        "it does not scale scores by YaRN's mscale_all_dim",
    ),
    Limit(("dbrx", "glm4_moe", "helium", "solar_open"), when.scaled, "it leaves the rope unscaled"),
    Limit(("dbrx",), when.other_experts, "it computes silu always"),
    Limit(("dbrx",), when.unnormed, "it divides the weights of experts by their sum always"),
    Limit(
        ("dbrx",),
        when.unsaid("attn_config", "kv_n_heads", "clip_qkv", "rope_theta"),
        "it asks for kv_n_heads, clip_qkv and rope_theta in attn_config",
    ),
    Limit(
        ("dbrx",),
        when.unsaid("ffn_config", "ffn_hidden_size", "moe_num_experts", "moe_top_k"),
        "it asks for ffn_hidden_size, moe_num_experts and moe_top_k in ffn_config",
    ),
    Limit(("dbrx",), when.named(".ffn.switch_mlp."), STACKED),
    Limit(("glm",), when.turns_a_part, "it rotates whole heads"),
    Limit(
        ("glm_moe_dsa",),
        lambda block, _names: any(block.get(name) is None for name in _OF_ROUTERS),
        f"it wants {_OF_ROUTERS[0]}, {_OF_ROUTERS[1]} and {_OF_ROUTERS[2]} in config.json",
    ),
    Limit(("glm_moe_dsa",), when.shares_choices, "it has an indexer in every layer"),
    Limit(("ernie4_5_moe",), when.ever, "it leaves out the correction of the choice of experts"),
    Limit(("falcon_h1",), when.differs("key_multiplier", 1), KEYS),
    Limit(("falcon_h1",), when.packed, "it multiplies numbers of the config into packed matrices' codes"),
    Limit(("falcon_h1",), when.normed_groups, STATE_GROUPS),
    Limit(("jamba",), when.ever, "it weighs experts by a softmax over the chosen ones, not over all"),
    Limit(("gpt2",), when.named("transformer.h."), BARE),
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
    Limit(
        ("llama", "mistral", "qwen2", "qwen3"),
        when.equals("is_causal", False),
        "its tokens see what stands before them alone",
    ),
    Limit(("gpt_bigcode",), when.equals("n_inner", None), "it asks for n_inner"),
    Limit(
        ("gpt_bigcode",),
        when.equals("multi_query", False),
        "it has queries, keys and values in another order",
    ),
    Limit(("gpt_bigcode",), when.equals("scale_attn_weights", False), "it scales scores always"),
    Limit(
        ("gpt_bigcode",), when.named_other("gelu", "gelu_new", "gelu_pytorch_tanh"), "it computes gelu always"
    ),
    Limit(("gptj",), when.named_other("gelu_new", "gelu_pytorch_tanh"), "it computes gelu_new always"),
    Limit(("gptj",), when.other_n_inner, QUADRUPLE),
    Limit(("gpt_neox",), when.other_inner, QUADRUPLE),
    Limit(("gpt_neox",), when.equals("attention_bias", False), BIASED),
    Limit(("gpt_neox",), when.equals("tie_word_embeddings", True), OWN_HEAD),
    Limit(
        ("gpt_oss",),
        lambda block, _names: "quantization" not in block,
        PACKED_EXPERTS,
    ),
    Limit(
        ("gpt_oss",),
        lambda block, _names: when.rope_of(block).get("truncate") is False,
        "it truncates YaRN's ramp",
    ),
    Limit(("granitemoehybrid",), when.above_one("mamba_n_groups"), STATE_GROUPS),
    Limit(("granitemoehybrid",), when.dense_granite, INNER),
    Limit(("mamba2",), when.above_one("n_groups"), STATE_GROUPS),
    Limit(("kimi_linear",), when.named(".block_sparse_moe.down_proj."), FIRST_MLP),
    Limit(("kimi_linear",), when.packed_shared, PACKED_SHARED),
    Limit(("kimi_linear",), when.named(".block_sparse_moe.switch_mlp."), STACKED),
    Limit(("llama4_text",), when.ever, NO_EXPERTS, alone=True),
    Limit(("minimax",), when.ever, "its class of that name is MiniMax M2's", alone=True),
    Limit(("llama4_text",), when.equals("attention_bias", True), NO_BIAS, alone=True),
    Limit(("llama4_text",), when.above_one("num_experts_per_tok"), "it asks one expert for each token"),
    Limit(("llama4_text",), when.irregular("no_rope_layers", 4, (1, 0)), _FOURTH),
    Limit(
        (*("qwen3_5_text", "qwen3_5_moe_text"), *("qwen3_5", "qwen3_5_moe")),
        when.irregular("layer_types", "full_attention_interval", ("linear_attention", "full_attention")),
        "it has full attention at regular intervals",
    ),
    Limit(
        ("gpt_oss",),
        lambda block, names: (
            when.differs("swiglu_alpha", 1.702)(block, names) or when.differs("swiglu_limit", 7)(block, names)
        ),
        "it computes swiglu by 1.702, with a limit of 7",
    ),
    Limit(
        ("afmoe", "mellum"),
        lambda block, _names: "full_attention" not in (block.get("layer_types") or ("full_attention",)),
        "it looks for a layer of full_attention",
    ),
    Limit(
        ("afmoe",), when.equals("num_experts_per_tok", 1), "it leaves the weight of a lone expert as it is"
    ),
    Limit(
        ("mellum",),
        lambda block, _names: "dense" in (block.get("mlp_layer_types") or ()),
        "all of its layers have experts",
    ),
    Limit(
        ("minicpm", "minicpm3"),
        when.equals("tie_word_embeddings", True),
        "it does not scale what a tied head reads",
    ),
    Limit(("minicpm",), when.above_one("num_experts"), NO_EXPERTS),
    Limit(("minicpm3",), when.equals("q_lora_rank", None), "it makes queries in two steps always"),
    Limit(("minicpm3",), when.equals("mlp_bias", True), "its MLPs have no biases"),
    Limit(("minicpm3",), when.other_values, "its values are as wide as hidden_size over the heads"),
    Limit(
        ("minicpm3",),
        lambda block, _names: "long_factor" not in when.rope_of(block),
        "it knows no rotation but LongRoPE",
    ),
    Limit(("muse_glimmer",), when.named("vision"), TOWER),
    Limit(("llava", "pixtral"), when.ever, ONLY_LLAMA, risk=True),
    Limit(("nemotron_h",), when.equals("use_bias", True), UNBIASED_STATES),
    Limit(("nemotron-nas",), when.named(".linear_"), MATRICES),
    Limit(
        ("olmo3",),
        lambda block, _names: when.rope_of(block).get("attention_factor") is not None,
        ATTENTION_FACTOR,
    ),
    Limit(("gpt_oss",), when.equals("attention_bias", False), BIASED),
    Limit(("seed_oss",), when.tied_and_packed, PACKED_HEAD),
    Limit(("olmo_hybrid",), when.named(".attention_layer_norm."), NORMS),
    Limit(
        ("openelm",),
        lambda block, _names: block.get("activation_fn_name") not in (None, "silu", "swish"),
        "it computes silu always",
    ),
    Limit(("olmo",), when.ever, "its class reads the layout of ai2-olmo alone"),
    Limit(("nanochat",), when.ever, "its class reads the layout of nanochat's own files alone"),
    Limit(("olmoe",), when.is_set("clip_qkv"), "it leaves out clip_qkv"),
    Limit(
        ("minicpm", "minicpm3", "phi3", "phimoe"),
        lambda block, _names: "long_factor" in when.rope_of(block),
        "it takes LongRoPE's long factors for short texts too",
        risk=True,
    ),
    Limit(("phi",), when.equals("qk_layernorm", True), "it has no norms of queries and keys"),
    Limit(("phi",), when.other_gelu, "it computes gelu_new always"),
    Limit(
        ("qwen3_vl_moe",),
        when.ever,
        INPUT_FIRST,
        risk=True,
    ),
    Limit(("recurrent_gemma",), when.above_one("num_key_value_heads"), "it has one head of keys and values"),
    Limit(("starcoder2",), when.equals("use_bias", False), BIASED_ALL),
    Limit(
        (), when.ordered, "it has no place for the order of a matrix's inputs (X.order, of GPTQ's act-order)"
    ),
)
