"""Mamba, Mamba 2 and what they have in common with hybrids: filters, rates and sizes of states."""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.changes import DECAY
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Shape
from modelkit.source.gguf.architectures.parts import HIDDEN, rule, rules
from modelkit.source.gguf.architectures.rules import Kept, Rule, flat
from modelkit.source.gguf.architectures.settings import Always, Same, Setting, Special, Written


def _filters_to_ours(shape: Shape, _: Facts) -> Shape:
    """What is none stays as it is, and is refused by the network that it does not fit."""
    return (shape[0], 1, shape[1]) if len(shape) == 2 else shape


def _filters_to_theirs(shape: Shape, _: Facts) -> Shape:
    """From [channels, 1, taps] or [channels, taps, 1]."""
    return (shape[0], shape[1] * shape[2]) if len(shape) == 3 else shape


def _column(shape: Shape, _: Facts) -> Shape:
    return (*shape, 1)


def _by_group(shape: Shape, facts: Facts) -> Shape:
    groups = max(facts.count("n_groups", "mamba_n_groups", default=1), 1)
    return (groups, shape[0] // groups)


FILTERS = Kept(_filters_to_ours, _filters_to_theirs)
RATES = Kept(change=DECAY)
"""[channels, state], as in Mamba."""
RATE_OF_HEADS = Kept(flat, _column, DECAY)
OF_HEADS = Kept(flat, _column)
GROUPED_NORM = Kept(flat, _by_group)


def mamba(home: str) -> tuple[Rule, ...]:
    """Tensors of Mamba's first kind."""
    return (
        *rules(f"""
            ssm_in.* = {home}.in_proj.*
            ssm_conv1d.bias = {home}.conv1d.bias
            ssm_x.* = {home}.x_proj.*
            ssm_dt.* = {home}.dt_proj.*
            ssm_d = {home}.D
            ssm_out.* = {home}.out_proj.*
        """),
        rule("ssm_conv1d.weight", f"{home}.conv1d.weight", FILTERS),
        rule("ssm_a", f"{home}.A_log", RATES),
    )


def mamba2(home: str) -> tuple[Rule, ...]:
    """Tensors of Mamba's second kind."""
    return (
        *rules(f"""
            ssm_in.* = {home}.in_proj.*
            ssm_conv1d.bias = {home}.conv1d.bias
            ssm_dt.bias = {home}.dt_bias
            ssm_out.* = {home}.out_proj.*
        """),
        rule("ssm_conv1d.weight", f"{home}.conv1d.weight", FILTERS),
        rule("ssm_a", f"{home}.A_log", RATE_OF_HEADS),
        rule("ssm_d", f"{home}.D", OF_HEADS),
        rule("ssm_norm.weight", f"{home}.norm.weight", GROUPED_NORM),
    )


def any_bias(name: str, tensor: str) -> Setting:
    """A flag that holds where any block has this bias."""

    def read(file: Reading) -> None:
        file.config[name] = any(f"blk.{i}.{tensor}.bias" in file.shapes for i in range(file.layers))

    return Special(read)


_PLACES = 1 << 20
"""llama.cpp's converter writes this for models without positions."""


def _placeholders(out: Writing) -> None:
    out.put("context_length", _PLACES)
    out.put("feed_forward_length", 0)
    out.put("attention.head_count", 0)


_SETTINGS: tuple[Setting, ...] = (
    HIDDEN,
    Special(
        lambda file: file.skip("context_length", "feed_forward_length", "attention.head_count"), _placeholders
    ),
    Same(
        "attention.layer_norm_rms_epsilon",
        ("layer_norm_epsilon", "rms_norm_eps"),
        default=1e-5,
        needed=True,
        kind=float,
    ),
    Same("ssm.conv_kernel", ("conv_kernel",), default=4, needed=True),
    Same("ssm.state_size", ("state_size",), needed=True),
    any_bias("use_bias", "ssm_in"),
    any_bias("use_conv_bias", "ssm_conv1d"),
)
_TOP = rules("""
    token_embd.weight = backbone.embeddings.weight
    output_norm.weight = backbone.norm_f.weight
    output.weight = lm_head.weight
""")


def _inner_of_first(file: Reading) -> None:
    inner, hidden = file.count("ssm.inner_size"), file.config["hidden_size"]
    if inner != 2 * hidden:
        file.unsupported(f"`{file.full('ssm.inner_size')}` is {inner}; twice {hidden} was expected")
    file.config |= {"expand": 2, "intermediate_size": inner}


def _write_inner_of_first(out: Writing) -> None:
    hidden = out.facts.hidden
    inner = out.facts.count("intermediate_size", default=out.facts.count("expand", default=2) * hidden)
    if inner != 2 * hidden:
        out.refuse(f"a mixer is {inner} wide, not twice {hidden}, which llama.cpp does not compute for mamba")
    out.put("ssm.inner_size", inner)


def _rank(out: Writing) -> int:
    told = out.facts.get("time_step_rank", default="auto")
    return told if type(told) is int else -(-out.facts.hidden // 16)


MAMBA = Architecture(
    "mamba",
    (
        Kind(
            "falcon_mamba",
            "FalconMambaForCausalLM",
            lambda file: file.get("ssm.dt_b_c_rms") is True,
            settings=(Written("ssm.dt_b_c_rms", lambda _: True), Always("mixer_rms_eps", 1e-6)),
        ),
        Kind("mamba", "MambaForCausalLM", settings=(Written("ssm.dt_b_c_rms", lambda _: False),)),
    ),
    (
        *_SETTINGS,
        Special(_inner_of_first, _write_inner_of_first),
        Special(
            lambda file: file.config.update(time_step_rank=file.count("ssm.time_step_rank")),
            lambda out: out.put("ssm.time_step_rank", _rank(out)),
        ),
    ),
    _TOP,
    (rule("attn_norm.weight", "norm.weight"), *mamba("mixer")),
    home="backbone.layers.{}.",
    exact="function; A_log within 1.2e-7",
    otherwise=("wide_residual",),  # where sums are rounded to bf16; GGUF leaves it to the program
)


def heads_of_state(file: Reading) -> tuple[int, int]:
    """(heads, size of a head) of a state space of the second kind."""
    inner, heads = file.count("ssm.inner_size"), file.count("ssm.time_step_rank")
    if not heads or inner % heads:
        file.refuse(f"`{file.full('ssm.inner_size')}` is {inner}, which {heads} heads cannot share")
    return heads, inner // heads


def _read_second(file: Reading) -> None:
    heads, size = heads_of_state(file)
    inner, hidden = heads * size, file.config["hidden_size"]
    if inner % hidden:
        file.unsupported(f"`{file.full('ssm.inner_size')}` is {inner}, not a multiple of {hidden}")
    file.config |= {"num_heads": heads, "head_dim": size, "expand": inner // hidden}


def _write_second(out: Writing) -> None:
    heads, size = out.facts.count("num_heads", default=128), out.facts.count("head_dim", default=64)
    out.put("ssm.inner_size", heads * size)
    out.put("ssm.time_step_rank", heads)


def no_limits(out: Writing) -> None:
    """Steps are not bounded in llama.cpp."""
    limits = out.facts.get("time_step_limit", "mamba_time_step_limit")
    if limits and (float(_number(limits[0])) > 0 or _number(limits[1]) != float("inf")):
        out.refuse(f"time_step_limit bounds steps, which llama.cpp does not compute for {out.architecture}")


def _number(value: object) -> float:
    """A number of a config; transformers writes infinity as a block with its name."""
    if isinstance(value, dict):
        value = value.get("__float__", 0)
    return float(value) if isinstance(value, (int, float, str)) else 0.0


MAMBA2 = Architecture(
    "mamba2",
    (Kind("mamba2", "Mamba2ForCausalLM"),),
    (
        *_SETTINGS,
        Same("ssm.group_count", ("n_groups",), default=8, needed=True),
        Special(_read_second, _write_second),
        Special(writing=no_limits),
    ),
    _TOP,
    (rule("attn_norm.weight", "norm.weight"), *mamba2("mixer")),
    home="backbone.layers.{}.",
    exact="function; A_log within 1.2e-7",
    otherwise=("wide_residual",),  # where sums are rounded to bf16; GGUF leaves it to the program
)
