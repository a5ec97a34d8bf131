"""PLaMo: heads of keys that are read in turn in checkpoints, and one after the other in llama.cpp. PLaMo 2
and 3: norms on both sides of every sublayer, whose weights checkpoints store less a number of their own;
Mamba layers in PLaMo 2, layers under a window in PLaMo 3.
"""

from collections.abc import Sequence

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.changes import Added, Columns
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Atom, Link, Side
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    CONTEXT,
    HEADS,
    HIDDEN,
    INNER,
    MLP,
    RMS,
    ROWS,
    SHIFTED,
    TOP,
    VOCAB,
    decoder,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import read_scaling, write_scaling
from modelkit.source.gguf.architectures.rules import Kept, Members, Regrouped
from modelkit.source.gguf.architectures.settings import Always, Same, Special, Written
from modelkit.source.gguf.architectures.state import FILTERS, RATES
from modelkit.source.gguf.architectures.windows import told_kinds
from runtime.quoting import quoted
from runtime.records import dataclass

_HOME = "model.layers.layers.{}."
_EVERY = 8
"""llama.cpp's habit: every how many layers one of PLaMo 3 sees everything."""


def _sharing(facts: Facts, _: int = 0) -> tuple[int, int, int]:
    """Heads of keys, those of queries that read one of them, and numbers of a head."""
    each = facts.count("n_shared_head", default=8)
    return facts.heads // max(each, 1), each, facts.hidden // max(facts.heads, 1)


class _TurnedColumns:
    def link(self, members: Members) -> Link | None:
        keys, each, size = _sharing(members.facts)
        return Kept(change=Columns((each, keys, size), (1, 0, 2))).link(members)


def _read_sharing(file: Reading) -> None:
    heads, keys = file.count("attention.head_count"), file.count("attention.head_count_kv")
    if not keys or not heads or heads % keys or file.config["hidden_size"] % heads:
        file.refuse(f"{heads} heads of queries cannot share {keys} of keys")
    file.config["n_shared_head"] = heads // keys
    if read_scaling(file)["rope_type"] != "default" or file.number("rope.freq_base", 10000.0) != 10000:
        file.unsupported("the rotation is not the plain one by 10000, as in no PLaMo")


PLAMO = Architecture(
    "plamo",
    (Kind("plamo", "PlamoForCausalLM"),),
    (
        CONTEXT,
        HIDDEN,
        INNER,
        HEADS[0],
        Special(_read_sharing, lambda out: out.put("attention.head_count_kv", _sharing(out.facts)[0])),
        RMS,
        Always("hidden_act", "silu", unless=("swish",)),
    ),
    TOP,
    (
        rule("attn_norm.weight", "norm.weight"),
        rule("attn_q.weight", "self_attn.q_proj.weight", Regrouped(_sharing, (1, 0, 2))),
        *ATTENTION[1:3],
        rule("attn_output.weight", "self_attn.o_proj.weight", _TurnedColumns()),
        *MLP,
    ),
    home=_HOME,
)


@dataclass(frozen=True, slots=True)
class _OfIds:
    """A head has a multiple of 16 rows in a checkpoint, and those of ids in a file."""

    def link(self, members: Members) -> Link | None:
        rows, width = members.shapes.get(members.ours[0], (0, 0))
        ids = members.facts.count("vocab_size")
        if rows <= ids:
            return Kept().link(members)
        ours = Side(members.ours[0], (rows, width), (0, 1))
        return Link((Side(members.theirs[0], (ids, width)),), (ours,), (Atom(ids), Atom(rows - ids)))


_TOP = (
    rule("token_embd.weight", "model.embed_tokens.weight"),
    rule("output.weight", "lm_head.weight", _OfIds()),
    rule("output_norm.weight", "model.norm.weight", SHIFTED),
)
_BLOCK = (
    rule("attn_norm.weight", "pre_mixer_norm.weight", SHIFTED),
    rule("post_attention_norm", "post_mixer_norm.weight", Kept(change=Added(1 / 5))),
    rule("ffn_norm.weight", "pre_mlp_norm.weight", SHIFTED),
    rule("post_ffw_norm", "post_mlp_norm.weight", Kept(change=Added(1 / 5**1.5))),
    *rules("""
        attn_qkv.weight = mixer.qkv_proj.weight
        attn_output.weight = mixer.o_proj.weight
        ffn_up.weight = mlp.gate_up_proj.weight
        ffn_down.weight = mlp.down_proj.weight
    """),
)


def _step(recurrent: Sequence[bool]) -> int | None:
    """The `mamba_step` by which a config says these layers; None: there is none."""
    layers = len(recurrent)
    for step in range(2, 2 * layers + 2):
        if layers <= step // 2:
            wanted = [place < layers - 1 for place in range(layers)]
        else:
            wanted = [place % step != step // 2 for place in range(layers)]
        if list(recurrent) == wanted:
            return step
    return None


def _read_layers(file: Reading) -> None:
    """Layers without heads are Mamba's. All others see everything, as llama.cpp computes them."""
    heads, shared = file.each("attention.head_count"), file.each("attention.head_count_kv")
    some = {pair for pair in zip(heads, shared, strict=True) if pair[1]}
    recurrent = [count == 0 for count in shared]
    step = _step(recurrent)
    if len(some) != 1 or (any(recurrent) and step is None):
        file.unsupported(f"`{file.full('attention.head_count_kv')}` is {quoted(shared)}, as in no PLaMo 2")
    file.config["num_attention_heads"], file.config["num_key_value_heads"] = some.pop()
    file.config |= {
        "mamba_enabled": any(recurrent),
        "mamba_step": step or 2,
        "full_attention_idx": [place for place, one in enumerate(recurrent) if not one],
        "hidden_size_per_head": file.count("attention.key_length"),
    }
    if file.count("attention.value_length") != file.config["hidden_size_per_head"]:
        file.unsupported("heads of keys and of values differ in size, which is not computed")


def _write_layers(out: Writing) -> None:
    facts = out.facts
    full = facts.get("full_attention_idx", default=[])
    recurrent = [f"{_HOME.format(i)}mixer.A_log" in out.shapes for i in range(facts.layers)]
    size, positions = (
        facts.count(name, default=2048) for name in ("attention_window_size", "max_position_embeddings")
    )
    if any(not one and place not in full for place, one in enumerate(recurrent)):
        out.otherwise += ["windows"]
    if out.otherwise and size < positions:
        out.notes.append(
            f"the window of {size:,} tokens has no place in GGUF: llama.cpp will see further back"
        )
    # Its converter writes that Mamba layers have no heads: with none in the first llama.cpp turns nothing.
    for key, count in (("head_count", facts.heads), ("head_count_kv", facts.kv_heads)):
        out.put(f"attention.{key}", [0 if one and key == "head_count_kv" else count for one in recurrent])
    for key in ("key_length", "value_length"):
        out.put(f"attention.{key}", facts.count("hidden_size_per_head", default=128))


def _read_state(file: Reading) -> None:
    heads, inner = file.count("ssm.time_step_rank"), file.count("ssm.inner_size")
    if inner != heads * file.config["hidden_size_per_head"]:
        file.refuse(f"`{file.full('ssm.inner_size')}` is {inner}, and there are {heads} heads")
    file.config["mamba_num_heads"] = heads


def _write_state(out: Writing) -> None:
    heads = out.facts.count("mamba_num_heads", default=64)
    out.put("ssm.time_step_rank", heads)
    out.put("ssm.inner_size", heads * out.facts.count("hidden_size_per_head", default=128))


PLAMO2 = Architecture(
    "plamo2",
    (Kind("plamo2", "Plamo2ForCausalLM"),),
    (
        CONTEXT,
        HIDDEN,
        INNER,
        RMS,
        VOCAB,
        Special(_read_layers, _write_layers),
        Special(_read_state, _write_state),
        Same("ssm.state_size", ("mamba_d_state",), default=64, needed=True),
        Same("ssm.conv_kernel", ("mamba_d_conv",), default=4, needed=True),
        Written("ssm.group_count", lambda _: 0, lambda _: 0),
        Written("rope.freq_base", lambda _: 10000.0, lambda _: 10000.0),
    ),
    _TOP,
    (
        *_BLOCK,
        *rules("""
            ssm_in.weight = mixer.in_proj.weight
            ssm_x.weight = mixer.bcdt_proj.weight
            ssm_dt.weight = mixer.dt_proj.weight
            ssm_dt.bias = mixer.dt_bias
            ssm_d = mixer.D
            ssm_out.weight = mixer.out_proj.weight
            ssm_dt_norm = mixer.dt_norm_weight
            ssm_b_norm = mixer.B_norm_weight
            ssm_c_norm = mixer.C_norm_weight
        """),
        rule("attn_q_norm.weight", "mixer.q_weight", ROWS),
        rule("attn_k_norm.weight", "mixer.k_weight", ROWS),
        rule("ssm_conv1d.weight", "mixer.conv1d.weight", FILTERS),
        rule("ssm_a", "mixer.A_log", RATES),
    ),
    home=_HOME,
    exact="bits; a window is not in the file",
)


def _read_windows(file: Reading) -> None:
    size = file.count("attention.sliding_window", 0)
    slides = told_kinds(file, _EVERY, full_first=False) if size else [False] * file.layers
    layers = range(file.layers)
    fitting = (n for n in range(1, len(layers) + 2) if [(i + 1) % n != 0 for i in layers] == slides)
    every = next(fitting, None)
    if every is None:
        file.unsupported("layers that see everything do not come at equal distances, as in no PLaMo 3")
    file.config |= {"window_size": size or file.count("context_length"), "sliding_window_pattern": every}


def _write_windows(out: Writing) -> None:
    every = out.facts.count("sliding_window_pattern", default=_EVERY)
    told = out.facts.get("sliding_window", "window_size")
    sizes = {one for one in (told if isinstance(told, list) else [told]) if one is not None}
    if every > 1:
        out.put("attention.sliding_window", sizes.pop())
        out.put("attention.sliding_window_pattern", every)


def _read_ropes(file: Reading) -> None:
    block = read_scaling(file)
    base = file.number("rope.freq_base", 10000.0)
    file.config |= {"rope_theta": base, "rope_local_theta": file.number("rope.freq_base_swa", base)}
    if block["rope_type"] == "yarn":
        length = block.get("original_max_position_embeddings")
        file.config |= {"rope_scaling_factor": block["factor"], "initial_context_length": length}
    elif block["rope_type"] != "default":
        file.unsupported(f"the rotation is scaled ({block['rope_type']}), as in no PLaMo 3")


def _write_ropes(out: Writing) -> None:
    facts = out.facts
    base, older = float(facts.get("rope_theta", default=_BASE)), facts.get("rope_global_theta")
    base = float(older) if older is not None and base == _BASE else base
    out.put("rope.freq_base", base)
    out.put("rope.freq_base_swa", float(facts.get("rope_local_theta", default=10000.0)))
    factor = facts.get("rope_scaling_factor", default=1.0)
    if factor != 1:
        yarn = {"rope_type": "yarn", "factor": factor, "beta_fast": 32.0, "beta_slow": 1.0}
        length = facts.get("initial_context_length")
        write_scaling(out, {**yarn, "original_max_position_embeddings": length})


_BASE = 150_000.0
"""Of the authors' class; the older field counts beside it."""

PLAMO3 = Architecture(
    "plamo3",
    (Kind("plamo3", "Plamo3ForCausalLM"),),
    decoder(
        VOCAB,
        Special(_read_windows, _write_windows),
        Special(_read_ropes, _write_ropes),
        Always("hidden_act", "silu", unless=("swish",)),
    ),
    _TOP,
    (
        *_BLOCK,
        rule("attn_q_norm.weight", "mixer.q_norm.weight", SHIFTED),
        rule("attn_k_norm.weight", "mixer.k_norm.weight", SHIFTED),
    ),
    home=_HOME,
)
