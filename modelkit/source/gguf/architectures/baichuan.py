"""Baichuan 1 and 2: a Llama with one matrix for queries, keys and values.

llama.cpp tells the 7B, which turn, from the 13B, which have ALiBi, by their layers; models of other counts it
computes without either. It takes heads as they stand in a file, so those of Baichuan 2 are written with rows
of length one, which the converter leaves to whoever calls it.
"""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.changes import UNIT_ROWS
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Link
from modelkit.source.gguf.architectures.parts import (
    HIDDEN,
    INNER,
    MLP,
    NORMS,
    PAIRED_K,
    PAIRED_Q,
    RMS,
    TOP,
    qkv_rows,
    rule,
)
from modelkit.source.gguf.architectures.rope import Rope
from modelkit.source.gguf.architectures.rules import Joined, Kept, Members, Parted
from modelkit.source.gguf.architectures.settings import Always, Same, Special, Written
from runtime.records import dataclass

_TURNED, _BIASED = 32, 40
"""Layers of the two."""
_WORDS = 125696
"""In the vocabulary of Baichuan 2."""


def _second(facts: Facts) -> bool:
    return facts.get("z_loss_weight") is not None or facts.count("vocab_size") >= _WORDS


@dataclass(frozen=True, slots=True)
class _Head(Kept):
    def link(self, members: Members) -> Link | None:
        return Kept.link(self, members) if _second(members.facts) == (self.change is not None) else None


def _read_places(file: Reading) -> None:
    if file.layers not in (_TURNED, _BIASED):
        file.unsupported(
            f"it has {file.layers} layers; those of {_TURNED} rotate and those of {_BIASED} have ALiBi, and "
            "a file does not say it otherwise"
        )
    heads = file.config["num_attention_heads"]
    if file.count("attention.head_count_kv", heads) != heads:
        file.unsupported("heads share keys, which is not computed for Baichuan")
    turned, length = file.layers == _TURNED, file.count("context_length")
    file.config["max_position_embeddings" if turned else "model_max_length"] = length
    Rope().read(file)
    block = file.config.pop("rope_parameters")
    if block != {"rope_theta": 10000.0, "rope_type": "default"}:
        file.unsupported(f"the rotation is {block}, and Baichuan's is by 10000 and not scaled")


def _write_places(out: Writing) -> None:
    """A model of the other kind is refused where the file is read back."""
    facts = out.facts
    if facts.layers not in (_TURNED, _BIASED):
        out.refuse(
            f"it has {facts.layers} layers; llama.cpp rotates those of {_TURNED}, takes ALiBi for those of "
            f"{_BIASED}, and computes others without either"
        )
    out.put("context_length", facts.count("model_max_length", "max_position_embeddings"))
    out.put("rope.dimension_count", facts.hidden // facts.heads)


BAICHUAN = Architecture(
    "baichuan",
    (Kind("baichuan", "BaichuanForCausalLM"),),
    (
        HIDDEN,
        INNER,
        Same("attention.head_count", ("num_attention_heads",), needed=True),
        RMS,
        Special(_read_places, _write_places),
        Written("tensor_data_layout", lambda _: "Meta AI original pth"),
        Always("hidden_act", "silu"),
    ),
    (
        *TOP[:-1],
        rule("output.weight", "lm_head.weight", _Head(change=UNIT_ROWS)),
        rule("output.weight", "lm_head.weight", _Head()),
    ),
    (
        *NORMS,
        rule(
            ("attn_q.*", "attn_k.*", "attn_v.*"),
            "self_attn.W_pack.*",
            Joined(Parted(qkv_rows, (PAIRED_Q, PAIRED_K, None))),
        ),
        rule("attn_output.*", "self_attn.o_proj.*"),
        *MLP,
    ),
    exact="bits; heads of Baichuan 2 come back normed",
    otherwise=("unit_head",),
)
