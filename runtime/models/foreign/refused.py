"""Model classes of mlx-lm that are not run, and why: the words of a refusal, and of docs/foreign.md."""

_NO_REFERENCE = "transformers has no class for it, so nobody can tell whether mlx-lm's is right"
_UNLIKE = "mlx-lm's class computes something else than transformers' class of that name"

_ALONE = """
    afm7 baichuan_m1 bailing_moe bailing_moe_linear bailing_moe_v3 deepseek exaone gear hunyuan
    internlm2 iquestloopcoder joyai_llm_flash kimi_k3 kimi_vl Klear lille-130m longcat_flash_ngram
    mimo minicpm nemotron-nas openelm phi-msft phixtral plamo plamo2 prism_hadamard_qwen35 qwen
    rwkv7 spark2_5 step3p5 talkie
"""
_OTHER = "bailing_hybrid"

REFUSED: dict[str, str] = {
    **{name: f"mlx-lm's {name} is not run: {_NO_REFERENCE}" for name in _ALONE.split()},
    **{name: f"mlx-lm's {name} is not run: {_UNLIKE}" for name in _OTHER.split()},
    "bitnet": "mlx-lm's bitnet is not run: its kernels are for Metal only",
    "muse_spark": "mlx-lm's muse_spark is not run: its kernels are for Metal only",
    "deepseek_v41": "mlx-lm's deepseek_v41 is not run: it has a cache of its own",
    "longcat_flash": "mlx-lm's longcat_flash is not run: its answers depend on how a prompt is cut",
    "minimax_m3_vl": "mlx-lm's minimax_m3_vl is not run: it picks blocks by places in its cache",
    "phi3small": "mlx-lm's phi3small is not run: its tokens see those that come later",
    "plamo3": "mlx-lm's plamo3 is not run: its masks show one token more than it keeps",
    "pixtral": "mlx-lm's pixtral is not run: no reference is stored for it yet",
    "lfm2-vl": "mlx-lm's lfm2-vl is not run: no reference is stored for it yet",
}
