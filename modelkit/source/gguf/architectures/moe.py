"""What rows of mixtures share: stacks of experts, routers, and draft heads behind the layers."""

from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.parts import feed_forward, rule, rules
from modelkit.source.gguf.architectures.rules import Parted, Rule
from modelkit.source.gguf.architectures.settings import Same, Setting, Special, Written

SIGMOID, SOFTMAX = 2, 1
"""What llama.cpp calls the two ways from a router's scores to weights."""

ROUTER = rule("ffn_gate_inp.weight", "mlp.gate.weight")
CORRECTION = rule("exp_probs_b.bias", "mlp.gate.e_score_correction_bias")


def expert_rows(facts: Facts, _: int) -> tuple[int, ...]:
    inner = facts.count("moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
    return inner, inner


def experts(home: str = "mlp.switch_mlp") -> tuple[Rule, ...]:
    """Stacks of experts under MLX's names, gate and up together or apart."""
    pair = (f"{home}.gate_proj.*", f"{home}.up_proj.*")
    return (
        *feed_forward(home, "_exps"),
        rule("ffn_gate_up_exps.*", pair, Parted(expert_rows)),
    )


def shared_expert(home: str) -> tuple[Rule, ...]:
    return feed_forward(home, "_shexp")


def expert_settings(*names: str) -> tuple[Setting, ...]:
    """How many experts there are and how many are asked. names: of the field for the first."""
    return (
        Same("expert_count", names or ("num_experts", "num_local_experts"), needed=True),
        Same("expert_used_count", ("num_experts_per_tok",), needed=True),
    )


def has_experts(file: Reading) -> bool:
    return file.count("expert_count", 0) > 0


def is_sparse(file: Reading) -> list[bool]:
    """Which layers are mixtures, by their tensors."""
    return file.layers_with("ffn_gate_inp")


def read_sparse(file: Reading) -> None:
    file.config["mlp_layer_types"] = ["sparse" if one else "dense" for one in is_sparse(file)]


def leading_dense(name: str = "first_k_dense_replace", default: int = 0) -> Setting:
    """How many layers are no mixtures, which are the first ones."""

    def read(file: Reading) -> None:
        sparse = is_sparse(file)
        count = sparse.index(True) if True in sparse else len(sparse)
        if not all(sparse[count:]):
            file.unsupported("mixtures and dense layers alternate, which is not known of this architecture")
        told = file.count("leading_dense_block_count", count)
        if told != count:
            file.notes.append(
                f"the metadata says {told} leading dense layers; by their tensors it is {count}"
            )
        file.config[name] = count

    def write(out: Writing) -> None:
        out.put("leading_dense_block_count", dense_count(out, name, default))

    return Special(read, write)


def dense_count(out: Writing, name: str, default: int) -> int:
    kinds = out.facts.get("mlp_layer_types")
    if not kinds:
        return out.facts.count(name, default=default)
    count = next((i for i, kind in enumerate(kinds) if kind != "dense"), len(kinds))
    if "dense" in kinds[count:]:
        out.refuse("mlp_layer_types has dense layers behind mixtures, which GGUF cannot say")
    return count


def _width(key: str, name: str, tensor: str) -> Setting:
    """A field for the width of a block's matrices, which the first of them says where the file does not."""

    def read(file: Reading) -> None:
        names = (f"blk.{layer}.{tensor}.weight" for layer in range(file.layers))
        shape = next((file.shapes[one] for one in names if one in file.shapes), (None,))
        told = file.get(key)
        width = shape[-1] if told is None else told
        if width is not None:
            file.config[name] = width

    return Special(read, Same(key, (name,)).write)


def shared_inner(name: str) -> Setting:
    return _width("expert_shared_feed_forward_length", name, "ffn_down_shexp")


MOE_INNER = _width("expert_feed_forward_length", "moe_intermediate_size", "ffn_down_exps")
SHARED_COUNT = Same("expert_shared_count", ("n_shared_experts",))


def routed_scale(name: str = "routed_scaling_factor", default: float | None = None) -> Setting:
    """What weights of experts are multiplied by. default: what transformers takes for it."""
    return Same("expert_weights_scale", (name,), default=default, absent=1.0, zero=1.0, kind=float)


ROUTED_SCALE = routed_scale()
NORMALIZED = Same("expert_weights_norm", ("norm_topk_prob",), absent=False)


def _normalized(file: Reading) -> None:
    if file.get("expert_weights_norm") is not True:
        file.unsupported(f"`{file.full('expert_weights_norm')}` is not true, which is not computed")


ALWAYS_NORMALIZED = Special(_normalized, lambda out: out.put("expert_weights_norm", True))
GROUPS = (
    Same("expert_group_count", ("n_group",)),
    Same("expert_group_used_count", ("topk_group",)),
)


def gating(only: int, *, written: bool = True) -> Setting:
    """How a router's scores become weights; the family knows, so a file may only agree."""
    return Written("expert_gating_func", lambda _: only if written else None, lambda _: only)


def _scale_of_one(file: Reading) -> None:
    told = file.number("expert_weights_scale", 1.0)
    if told not in (0.0, 1.0):
        file.unsupported(
            f"`{file.full('expert_weights_scale')}` is {told}, and this architecture has no such scale"
        )


PLAIN_SOFTMAX = (gating(SOFTMAX, written=False), Special(_scale_of_one))
"""A router whose weights are a softmax's, not scaled."""


def heads_behind(name: str = "num_nextn_predict_layers", *, zero: bool = False) -> Setting:
    """Draft heads are blocks behind the last. zero: is it written that there are none?"""

    def write(out: Writing) -> None:
        if out.heads or zero:
            out.put("nextn_predict_layers", out.heads)

    return Special(lambda file: file.config.update({name: file.blocks - file.layers}), write)


NEXTN = rules("""
    nextn.eh_proj.* = eh_proj.*
    nextn.enorm.* = enorm.*
    nextn.hnorm.* = hnorm.*
    nextn.embed_tokens.* = embed_tokens.*
    nextn.shared_head_norm.* = shared_head.norm.*
    nextn.shared_head_head.* = shared_head.head.*
""")
