"""Block drafts (DFlash): a few blocks between a target's states and its head. Embedding and head are the
target's, and so is the vocabulary that a file brings.

llama.cpp counts layers of the target by what enters them, checkpoints by what leaves. Tokens of a block see
each other both ways unless a file says that they do not, in all layers alike.
"""

from typing import Any

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.parts import decoder, rules
from modelkit.source.gguf.architectures.rope import Rope
from modelkit.source.gguf.architectures.settings import Setting, Special
from modelkit.source.gguf.architectures.windows import WORDS, told_kinds
from runtime.quoting import quoted

NAME = "DFlashDraftModel"
_OWN = "dflash_config"
_MASK = ".tokenizer.ggml.mask_token_id"
_BLOCK_TOKENS = 16


def is_block_draft(config: Any) -> bool:
    """A config of the kind that is read and written here."""
    return NAME in (config.get("architectures") or ())


def _field(out: Writing, *names: str) -> Any:
    """A field that stands in `dflash_config` or beside everything else."""
    own = out.facts.get(_OWN, default={})
    return next((own[name] for name in names if own.get(name) is not None), out.facts.get(*names))


def _read_drafting(file: Reading) -> None:
    layers = file.get("target_layers")
    if not isinstance(layers, list) or not all(type(one) is int and one > 0 for one in layers):
        file.refuse(f"`{file.full('target_layers')}` is {quoted(layers)}; layers of the target were expected")
    mask = file.get(_MASK)
    if type(mask) is not int:
        file.refuse(f"`{file.full(_MASK)}` is {quoted(mask)}; the id of a token was expected")
    own: dict[str, Any] = {"mask_token_id": mask, "target_layer_ids": [one - 1 for one in layers]}
    for key, name in _SCALES:
        value = file.get(key)
        if value is not None:
            own[name] = value
    own["causal"] = file.get("attention.causal") is True
    file.config[_OWN] = own
    file.config["block_size"] = file.count("block_size", _BLOCK_TOKENS)
    sections = file.get("rope.dimension_sections")
    if sections is not None and (not isinstance(sections, list) or any(sections[1:])):
        file.unsupported(
            f"`{file.full('rope.dimension_sections')}` is {quoted(sections)}, which is not computed"
        )


def _write_drafting(out: Writing) -> None:
    layers = _field(out, "target_layer_ids")
    if not layers:
        out.refuse("config.json does not list target_layer_ids, which a GGUF file has to")
    if out.facts.get("rope_interleaved"):
        out.refuse("neighbours in a head are rotated, which GGUF cannot say for dflash")
    out.put("target_layers", [one + 1 for one in layers])
    out.put(_MASK, _field(out, "mask_token_id"))
    out.put("block_size", _field(out, "block_size") or _BLOCK_TOKENS)
    for key, name in _SCALES:
        value = _field(out, name)
        if value is not None:
            out.put(key, float(value))


_SCALES = (
    ("embedding_scale", "input_embedding_scale"),
    ("logit_scale", "output_multiplier"),
    ("final_logit_softcapping", "final_logit_softcapping"),
)


def _read_reach(file: Reading) -> None:
    size = file.count("attention.sliding_window", 0)
    slides = told_kinds(file, None, full_first=False) if size else [False] * file.layers
    file.config["sliding_window"] = size or None
    file.config["layer_types"] = [WORDS[one] for one in slides]


def _write_reach(out: Writing) -> None:
    """Which layers slide, and what a block's tokens see; see `runtime.models.dflash_config.read_reach`."""
    listed = [kind == WORDS[True] for kind in out.facts.get("layer_types", default=())]
    slides = listed if any(listed) else [bool(_field(out, "use_swa"))] * out.facts.layers
    if any(slides):
        out.put("attention.sliding_window", _field(out, "swa_window_size", "sliding_window"))
        out.put("attention.sliding_window_pattern", slides)
    stated = next(
        (one for name in ("is_causal", "causal", "causal_head") if (one := _field(out, name)) is not None),
        None,
    )
    causal = {bool(stated)} if stated is not None else {*listed} if any(listed) else {False}
    if len(causal) > 1:
        out.refuse("tokens of a block see each other in some layers only, which GGUF cannot say")
    out.put("attention.causal", causal.pop())


_SETTINGS: tuple[Setting, ...] = decoder(
    Rope(theta=1000000.0, dimensions=False),
    Special(_read_drafting, _write_drafting),
    Special(_read_reach, _write_reach),
)

DFLASH = Architecture(
    "dflash",
    (Kind("qwen3", NAME),),
    _SETTINGS,
    rules("""
        fc.weight = fc.weight
        enc.output_norm.weight = hidden_norm.weight
        output_norm.weight = norm.weight
    """),
    rules("""
        attn_norm.weight = input_layernorm.weight
        attn_q.weight = self_attn.q_proj.weight
        attn_k.weight = self_attn.k_proj.weight
        attn_v.weight = self_attn.v_proj.weight
        attn_output.weight = self_attn.o_proj.weight
        attn_q_norm.weight = self_attn.q_norm.weight
        attn_k_norm.weight = self_attn.k_norm.weight
        ffn_norm.weight = post_attention_layernorm.weight
        ffn_gate.weight = mlp.gate_proj.weight
        ffn_up.weight = mlp.up_proj.weight
        ffn_down.weight = mlp.down_proj.weight
    """),
    home="layers.{}.",
    exact="bits; a draft, with its target's vocabulary",
    condition=is_block_draft,
    of_target=True,
    otherwise=("of_layers",),  # a check of its target, which no file says
)
