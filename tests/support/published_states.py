"""Tensors as the hub and MLX's converter publish them: under other names, cut, joined or turned otherwise."""

import re
from collections.abc import Callable

import numpy as np

State = dict[str, np.ndarray]


def renamed(*pairs: tuple[str, str]) -> Callable[[State], State]:
    """Replace the first of these beginnings or parts that a name has."""

    def rename(name: str) -> str:
        return next((name.replace(ours, theirs, 1) for ours, theirs in pairs if ours in name), name)

    return lambda state: {rename(name): array for name, array in state.items()}


def with_slopes(state: State) -> State:
    """ALiBi's, stored beside a whole trunk."""
    return state | {"transformer.relative_pe.slopes": np.ones((8, 1), np.float32)}


def with_zero_biases(state: State) -> State:
    """Of the matrices in attention, whatever they are."""
    rows = {name: len(array) for name, array in state.items() if ".self_attn." in name}
    return state | {name.replace("weight", "bias"): np.zeros(n, np.float32) for name, n in rows.items()}


def old_wrapper(state: State) -> State:
    """transformers 4 and MLX: language_model.model, and a tower."""
    named = renamed(
        ("model.language_model.", "language_model.model."),
        ("model.vision_tower.", "vision_tower."),
        ("model.multi_modal_projector.", "multi_modal_projector."),
        ("model.embed_vision.", "embed_vision."),
        ("model.", "language_model.model."),
        ("lm_head.", "language_model.lm_head."),
    )(state)
    return {**named, "vision_tower.patch.weight": np.zeros((2, 2), np.float32)}


def mlx_experts(stack: str) -> Callable[[State], State]:
    """Gate and up apart, each [E, out, in], under the name `stack`."""

    def respell(state: State) -> State:
        out: State = {}
        for name, array in state.items():
            stem, found, leaf = name.rpartition(".experts.")
            for part, matrix in _parts(leaf, array) if found else [("", array)]:
                out[f"{stem}.{stack}.{part}.weight" if found else name] = matrix
        return out

    return respell


def _parts(leaf: str, stack: np.ndarray) -> list[tuple[str, np.ndarray]]:
    if leaf != "gate_up_proj":
        return [(leaf, stack)]
    gate, up = np.split(stack, 2, axis=1)
    return [("gate_proj", gate), ("up_proj", up)]


def _each(state: State, at: str) -> State:
    """The stacked experts of `at` one by one, gate and up apart."""
    out: State = {}
    for name, array in mlx_experts(at)(state).items():
        stem, found, leaf = name.rpartition(f".{at}.")
        if found:
            out.update({f"{stem}.{at}.{i}.{leaf}": one for i, one in enumerate(array)})
        else:
            out[name] = array
    return out


def one_by_one(state: State) -> State:
    """Gemma 4's experts as single matrices."""
    alone = _each(state, "moe.experts")
    return {n.replace(".router.per_expert_scale", ".moe.per_expert_scale"): x for n, x in alone.items()}


def llama4_by_mlx(state: State) -> State:
    turned = {
        n: a.swapaxes(1, 2) if n.endswith(("experts.gate_up_proj", "experts.down_proj")) else a
        for n, a in state.items()
    }
    return mlx_experts("experts")(turned)


def with_unused_keys(layer: int) -> Callable[[State], State]:
    """Published files keep keys and values for layers that read another layer's."""

    def respell(state: State) -> State:
        kept = [n for n in state if ".layers.1.self_attn.k" in n or ".layers.1.self_attn.v" in n]
        return state | {n.replace(".layers.1.", f".layers.{layer}."): state[n] for n in kept}

    return respell


def gpt2_of_old(state: State) -> State:
    named = {n.removeprefix("transformer."): a for n, a in state.items()}
    mask = np.ones((1, 1, 96, 96), np.float32)
    return {**named, "h.0.attn.bias": mask, "h.0.attn.masked_bias": np.array(-1e4, np.float32)}


def gpt2_by_mlx(state: State) -> State:
    turned = {n: a.T if a.ndim == 2 and ".c_" in n else a for n, a in state.items()}
    return {n.replace("transformer.", "model."): a for n, a in turned.items()}


def with_triangle(name: str) -> Callable[[State], State]:
    return lambda state: {**state, name: np.ones((1, 1, 96, 96), np.float32)}


def in_eight_cuts(state: State) -> State:
    """CodeGen2's 1B and 3.7B have [8][query, value, key] where CodeGen has [4][query, value, key]."""

    def recut(matrix: np.ndarray) -> np.ndarray:
        parts = matrix.reshape(4, 3, -1, matrix.shape[1]).swapaxes(0, 1).reshape(3, 8, -1, matrix.shape[1])
        return parts.swapaxes(0, 1).reshape(matrix.shape)

    return {name: recut(array) if ".qkv_proj." in name else array for name, array in state.items()}


def neox_by_mlx(state: State) -> State:
    buffers = {"gpt_neox.layers.0.attention.bias": np.ones((1, 1, 8, 8), np.float32)}
    return renamed(
        ("gpt_neox.layers.", "model.h."), ("gpt_neox.", "model."), ("lm_head.", "model.embed_out.")
    )({**state, **buffers})


def ernie_by_baidu(state: State) -> State:
    named = renamed((".mlp.gate.moe_statics.", ".mlp.moe_statics."))(state)
    head = {"model.mtp_linear_proj.0.weight": np.zeros((2, 2), np.float32)}
    return {**each_alone(named), **head}


def ernie_vl_by_baidu(state: State) -> State:
    """Experts for images behind those for text, scores in columns, corrections in two rows."""
    out: State = {"model.resampler_model.mlp.weight": np.zeros((2, 2), np.float32)}
    for name, array in each_alone(state).items():
        seen, name = ".vision_moe." in name, re.sub(r"\.(text|vision)_moe\.", ".", name)
        name = renamed(
            ("model.language_model.", "model."),
            ("model.vision_tower.", "vision_model."),
            (".gate.moe_statics.", ".moe_statics."),
        )({name: array}).popitem()[0]
        if name.endswith(".mlp.gate.weight"):
            out[f"{name}_1" if seen else name] = array.T
        elif name.endswith(".e_score_correction_bias"):
            out[name] = np.concatenate([out[name], array]) if seen else array
        else:
            behind = re.sub(r"experts\.(\d)", lambda one: f"experts.{int(one[1]) + 8}", name)
            out[behind if seen else name] = array
    return out


_MOLMO = (
    *(("model.language_model.layers.", "model.transformer.blocks."), (".o_proj.", ".attn_out.")),
    *(("model.language_model.norm.", "model.transformer.ln_f."), (".down_proj.", ".ff_out.")),
    *((".input_layernorm.", ".attn_norm."), (".post_attention_layernorm.", ".ff_norm.")),
    *((".q_proj.", ".att_proj."), (".k_proj.", ".att_proj."), (".v_proj.", ".att_proj.")),
    *((".up_proj.", ".ff_proj."), (".gate_proj.", ".ff_proj.")),
)


def molmo_by_ai2(state: State) -> State:
    """Queries, keys and values in one matrix, what passes a gate before it in another, two tables."""
    table = state["model.language_model.embed_tokens.weight"]
    out: State = {"model.vision_backbone.image_vit.patch.weight": np.zeros((2, 2), np.float32)}
    for part, rows in (("embedding", table[:144]), ("new_embedding", table[144:])):
        out[f"model.transformer.wte.{part}"] = rows
    for name, array in state.items():
        if any(part in name for part in ("vision_tower.", "projector.", "embed_tokens.")):
            continue
        called = name
        for pair in _MOLMO:
            called = called.replace(*pair)
        parts = [out[called], array] if called in out else [array]
        out[called] = np.concatenate(parts[::-1] if ".up_proj." in name else parts)
    return out


def dory_published(state: State) -> State:
    """Attention and MLP as layers of their own, under other names."""

    def apart(name: str) -> str:
        found = re.fullmatch(r"model\.layers\.(\d+)\.(self_attn|mlp|lambda_1|lambda_2)(.*)", name)
        if found is None:
            return name.replace("model.", "backbone.").replace(".embed_tokens.", ".embeddings.")
        called = {"lambda_1": "attn_alpha", "lambda_2": "mlp_alpha"}.get(found[2], "mixer")
        gate = found[3].replace(".gate_proj.", ".g_proj.") if found[2] == "self_attn" else found[3]
        layer = 2 * int(found[1]) + (found[2] in ("mlp", "lambda_2"))
        return f"backbone.layers.{layer}.{called}{gate}"

    return {apart(name): array for name, array in state.items()}


def exaone_by_lg(state: State) -> State:
    named = renamed((".mlp.gate.e_score_correction_bias", ".mlp.e_score_correction_bias"))(state)
    return with_a_head(named)


def with_a_head(state: State) -> State:
    return {**each_alone(state), "mtp.fc.weight": np.zeros((2, 2), np.float32)}


def hunyuan_by_tencent(state: State) -> State:
    named = renamed(
        (".mlp.gate.weight", ".mlp.router.gate.weight"),
        (".mlp.e_score_correction_bias", ".mlp.expert_bias"),
        (".mlp.shared_experts.", ".mlp.shared_mlp."),
    )(state)
    return {**each_alone(named), "model.layers.4.eh_proj.weight": np.zeros((2, 2), np.float32)}


def hunyuan_joined(state: State) -> State:
    """Heads of 16: a group has two of queries, and its key and value; gates stand behind ups."""
    found: State = {}
    for name, array in state.items():
        home, part = name.rsplit("_proj.", 1)[0], name[-len("q_proj.weight") :]
        if part == "q_proj.weight":
            parts = [state[f"{home[:-1]}{one}_proj.weight"].reshape(2, -1, 64) for one in "qkv"]
            found[f"{home[:-1]}qkv_proj.weight"] = np.concatenate(parts, 1).reshape(-1, 64)
        elif ".mlp.up_proj." in name:
            gate = state[name.replace(".up_proj.", ".gate_proj.")]
            found[name.replace("up_proj", "gate_and_up_proj")] = np.concatenate([array, gate])
        elif not name.endswith((".k_proj.weight", ".v_proj.weight", ".gate_proj.weight")):
            found[name] = array
    return found


def minimax_by_minimax(state: State) -> State:
    numbers = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    out: State = {}
    for name, array in each_alone(state).items():
        stem, found, leaf = name.rpartition(".experts.")
        if found:
            index, matrix, _ = leaf.split(".")
            name = f"{stem}.experts.{index}.{numbers[matrix]}.weight"
        out[name.replace(".mlp.", ".block_sparse_moe.")] = array
    return out


def minimax_m3_by_minimax(state: State) -> State:
    apart: State = {}
    for name, array in state.items():
        halves = np.split(array, 2) if array.ndim == 2 and ".gate_up_proj." in name else ()
        parts = zip((".gate_proj.", ".up_proj."), halves, strict=bool(halves))
        apart |= {name.replace(".gate_up_proj.", part): half for part, half in parts} or {name: array}
    named = renamed(
        (".block_sparse_moe.gate.e_score_correction_bias", ".block_sparse_moe.e_score_correction_bias"),
        (".self_attn.indexer.", ".self_attn.index_"),
        ("model.language_model.", "language_model.model."),
        ("lm_head.", "language_model.lm_head."),
    )
    return named(minimax_by_minimax(apart))


_HYPER = tuple(
    (f".{ours}_hc.{part}", f".hc_{theirs}_layer.hc_pre.hc_{part}")
    for ours, theirs in (("attn", "attn"), ("ffn", "mlp"))
    for part in ("fn", "base", "scale")
)


def hy_v4_by_tencent(state: State) -> State:
    """With a draft head."""
    named = renamed(
        *_HYPER,
        (".hc_head.hc_", ".hc_head.hc_head_"),
        (".self_attn.sinks", ".self_attn.learnable_sink_param"),
        (".self_attn.gate_proj.", ".self_attn.linear_gate."),
    )(state)
    return named | {"model.mtp_layers.0.enorm.weight": np.zeros((2,), np.float32)}


def minimax_with_rates(state: State) -> State:
    """With what transformers computes of the config, and saves."""
    rates = {"model.layers.0.self_attn.slope_rate": np.ones((4, 1, 1), np.float32)}
    return {**minimax_by_minimax(state), **rates}


def mimo_in_shares(state: State) -> State:
    """Queries, keys and values in one matrix: two shares of all three, one below the other."""
    out = {name: array for name, array in state.items() if not re.search(r"_attn\.[qkv]_proj\.", name)}
    for name in (name for name in state if ".q_proj." in name):
        parts = (np.split(state[name.replace(".q_", f".{part}_")], 2) for part in "qkv")
        shares = [piece for share in zip(*parts, strict=True) for piece in share]
        out[name.replace(".q_proj.", ".qkv_proj.")] = np.concatenate(shares)
    out["visual.blocks.0.attn.proj.weight"] = np.ones((2, 2), np.float32)
    return {**out, "speech_embeddings.0.weight": np.ones((2, 2), np.float32)}


def minimax_by_mlx(state: State) -> State:
    named = mlx_experts("switch_mlp")(state)
    return {name.replace(".mlp.", ".block_sparse_moe."): array for name, array in named.items()}


def qwen4_in_shards(state: State) -> State:
    """In a wrapper, with a draft head, tables in four parts, and constants stored for one of them."""
    out: State = {"mtp.norm.weight": np.zeros(4, np.float32)}
    for name, array in renamed(("model.", "model.language_model."))(state).items():
        stem, table, _ = name.partition(".ngram_embedding.weight")
        shards = np.split(array, 4) if table else ()
        out |= {f"{stem}.ngram_embedding.shard_{i}.weight": one for i, one in enumerate(shards)}
        if not table:
            out[name] = array
    multipliers = np.array([25912437101140037, 21043097849633001, 55314113489879299])
    return {**out, "model.language_model.layers.0.ple.ple_embedding.layer_multipliers": multipliers}


def glm_by_zai(state: State) -> State:
    """Streams' numbers under other names, filters apart, experts one by one, and a layer of a draft head."""
    names = (
        (f".{at}_hc.{leaf}", f".hc_{at}_{leaf}") for at in ("attn", "ffn") for leaf in ("fn", "base", "scale")
    )
    named = renamed(*names, (".forget_gate.", "."))(_each(state, "experts"))
    out: State = {"model.language_model.layers.4.shared_head.norm.weight": np.zeros(4, np.float32)}
    for name, array in named.items():
        if name.endswith(".conv1d.weight"):
            parts = zip("qkv", np.split(array, 3), strict=True)
            out |= {name.replace("conv1d", f"{part}_conv1d"): filters for part, filters in parts}
        else:
            out[name] = array
    return out


def each_alone(state: State) -> State:
    """Stacked experts one by one, gate and up apart."""
    return _each(state, "experts")


def longcat_by_meituan(state: State) -> State:
    """Without what transformers holds, and saves, for experts that have no matrices."""
    return {name: x for name, x in each_alone(state).items() if not re.search(r"\.experts\.[567]\.", name)}


_V4 = (
    (".self_attn.compressor.indexer.scorer.weights_proj.", ".attn.indexer.weights_proj."),
    (".self_attn.compressor.indexer.q_b_proj.", ".attn.indexer.wq_b."),
    (".self_attn.compressor.indexer.", ".attn.indexer.compressor."),
    (".compressor.kv_norm.", ".compressor.norm."),
    (".compressor.gate_proj.", ".compressor.wgate."),
    *((".self_attn.", ".attn."), (".mlp.", ".ffn."), (".sinks", ".attn_sink"), (".position_bias", ".ape")),
    *((".q_a_norm.", ".q_norm."), (".kv_proj.", ".wkv."), (".q_a_proj.", ".wq_a.")),
    *((".q_b_proj.", ".wq_b."), (".o_a_proj.", ".wo_a."), (".o_b_proj.", ".wo_b.")),
    *((".attn_hc.", ".hc_attn_"), (".ffn_hc.", ".hc_ffn_"), ("hc_head.hc_", "hc_head_")),
    *((".input_layernorm.", ".attn_norm."), (".post_attention_layernorm.", ".ffn_norm.")),
    (".gate.e_score_correction_bias", ".gate.bias"),
    *((".gate_proj.", ".w1."), (".down_proj.", ".w2."), (".up_proj.", ".w3.")),
    *(("model.embed_tokens.", "embed."), ("lm_head.", "head."), ("model.", "")),
)


def v4_by_deepseek(state: State) -> State:
    """Its own names, and a part of a draft head."""
    named = each_alone(state)
    for pair in (*_V4, (".indexer.compressor.kv_norm.", ".indexer.compressor.norm.")):
        named = renamed(pair)(named)
    more = {"mtp.0.norm.weight": named["norm.weight"], "aligner.w1.weight": named["head.weight"]}
    return named | more | {"layers.1.ffn.gate.bias_vl": named["layers.1.ffn.gate.bias"]}


_LARGE4 = (
    *((".self_attn.indexer.", ".attention.indexer."), (".self_attn.", ".attention.")),
    *((".q_proj.", ".wq."), (".o_proj.", ".wo."), (".kv_a_proj_with_mqa.", ".wkv_a_with_mqa.")),
    *((".kv_b_proj.", ".wkv_b."), (".kv_a_layernorm.", ".kv_a_norm.")),
    *((".softmax_scaling.scale", ".ssmax_scaling.s"), (".softmax_scaling.bias", ".ssmax_scaling.b")),
    *((".input_layernorm.", ".attention_norm."), (".post_attention_layernorm.", ".ffn_norm.")),
    *((".mlp.gate.", ".gate."), (".mlp.experts.", ".experts."), (".mlp.shared_experts.", ".shared_experts.")),
    *((".mlp.", ".feed_forward."), (".gate_proj.", ".w1."), (".down_proj.", ".w2."), (".up_proj.", ".w3.")),
    *(("rotary_emb.", "lerope."), ("embed_tokens.", "tok_embeddings."), ("lm_head.", "output.")),
    ("model.vision_tower.", "vision_encoder."),
    *(("model.multi_modal_projector.patch_merger.", "patch_merger."), ("model.language_model.", "")),
    *(("model.multi_modal_projector.", "vision_language_adapter."),),
)


def large4_by_mistral(state: State) -> State:
    """Its own names, and a part of a draft head."""
    named = each_alone(state)
    for pair in _LARGE4:
        named = renamed(pair)(named)
    return named | {"mtp_dspark.norm.weight": named["norm.weight"]}


def axk2_by_skt(state: State) -> State:
    """Gates of norms and queries under its own names."""
    named = each_alone(state)
    for pair in ((".mlp.fc1.", ".W_down."), (".mlp.fc2.", ".W_up."), (".q_gate_proj.", ".q_b_proj.")):
        named = renamed(pair)(named)
    return named


def sarvam_by_sarvam(state: State) -> State:
    """One matrix for queries, keys and values, and one bias."""
    named = each_alone(state)
    for pair in (
        ("model.embed_tokens.", "model.word_embeddings."),
        (".self_attn.o_proj.", ".attention.dense."),
        (".self_attn.q_norm.", ".attention.query_layernorm."),
        (".self_attn.k_norm.", ".attention.key_layernorm."),
        (".mlp.gate.e_score_correction_bias", ".mlp.gate.expert_bias"),
    ):
        named = renamed(pair)(named)
    out = {name: x for name, x in named.items() if not re.search(r"\.self_attn\.[qkv]_proj\.", name)}
    for name in named:
        if ".self_attn.q_proj." in name:
            parts = [named[name.replace(".q_proj.", f".{part}_proj.")] for part in "qkv"]
            out[name.replace(".self_attn.q_proj.", ".attention.query_key_value.")] = np.concatenate(parts)
    return out


def step_by_mlx(state: State) -> State:
    """Norms whole, and its own names."""
    named = renamed(
        (".moe.router_bias", ".mlp.gate.router_bias"),
        (".moe.gate.", ".mlp.gate.gate."),
        (".moe.", ".mlp.switch_mlp."),
        (".share_expert.", ".mlp.share_expert."),
    )(state)
    return {name: x + 1 if name.endswith("norm.weight") else x for name, x in named.items()}


_INKLING = (
    ("model.embed_tokens.embed_norm.", "model.llm.embed_norm."),
    ("model.embed_tokens.", "model.llm.embed."),
    ("lm_head.", "model.llm.unembed."),
    ("model.", "model.llm."),
)
_INKLING_INSIDE = (
    *(
        (f".self_attn.{ours}_proj.", f".attn.{theirs}.")
        for ours, theirs in zip("qkvro", ("wq_du", "wk_dv", "wv_dv", "wr_du", "wo_ud"), strict=True)
    ),
    (".self_attn.", ".attn."),
    ("_sconv.conv1d.", "_sconv."),
    (".post_attention_layernorm.", ".mlp_norm."),
    (".input_layernorm.", ".attn_norm."),
    (".e_score_correction_bias", ".bias"),
    (".shared_experts.down_proj", ".shared_experts.shared_w2_weight"),
    (".experts.down_proj", ".experts.w2_weight"),
    (".mlp.down_proj.", ".mlp.w2_md."),
)


def inkling_published(state: State) -> State:
    """Gate and up with rows in turn; table and head with rows that no id has."""
    named: State = {}
    for name, array in state.items():
        ours, theirs = next(pair for pair in _INKLING if name.startswith(pair[0]))
        name = name.replace(ours, theirs, 1)
        for ours, theirs in _INKLING_INSIDE:
            name = name.replace(ours, theirs)
        if name.endswith(("embed.weight", "unembed.weight")):
            array = np.concatenate([array, np.ones_like(array[:8])])
        if name.endswith(".gate_up_proj"):
            halves = np.split(array, 2, axis=1)
            name, array = name.replace("gate_up_proj", "w13_weight"), np.stack(halves, 2).reshape(array.shape)
        named[name] = array
    for fused, axis in ((".shared_experts.{}_proj", 1), (".mlp.{}_proj.weight", 0)):
        for name in [name for name in named if name.endswith(fused.format("gate"))]:
            parts = [named.pop(name.replace("gate_proj", f"{part}_proj")) for part in ("gate", "up")]
            other = name.replace("gate_proj", "shared_w13_weight" if axis else "w13_dn")
            shape = (*parts[0].shape[:axis], -1, *parts[0].shape[axis + 1 :])
            named[other] = np.stack(parts, axis + 1).reshape(shape)
    return named


_INKLING2 = (
    (".self_attn.q_proj.linear.", ".attn.wq_du."),
    (".self_attn.k_proj.linear.", ".attn.wk_dv."),
    (".self_attn.v_proj.linear.", ".attn.wv_dv."),
    (".self_attn.o_proj.linear.", ".attn.wo_ud."),
    (".self_attn.o_proj.gate_proj.", ".attn.gate_attn."),
    (".self_attn.q_proj.norm.", ".attn.q_l2_clip."),
    (".self_attn.relative_position_bias.linear.", ".attn.wr_du."),
    (".self_attn.relative_position_bias.norm.", ".attn.rel_l2_clip."),
    (".self_attn.relative_position_bias.", ".attn.rel_logits_proj."),
    (".self_attn.sink_proj.", ".attn.attn_sink_proj."),
    (".self_attn.k_proj.sconv.", ".attn.k_sconv."),
    (".self_attn.v_proj.sconv.", ".attn.v_sconv."),
    (".post_attention_convolution.", ".attn_sconv."),
    (".post_mlp_convolution.", ".mlp_sconv."),
    ("_sconv.conv1d.", "_sconv."),
    (".static_weight", ".static_w"),
    (".weight_proj.weight", ".weight_proj"),
    (".post_attention_layernorm.", ".mlp_norm."),
    ("_input_layernorm.", "_input_norm."),
    (".input_layernorm.", ".attn_norm."),
    (".e_score_correction_bias", ".bias"),
    (".experts.down_proj", ".experts.w2_weight"),
    (".q_message_gate.", ".controllers.attn."),
    *((f".{part}_message_gate.", f".controllers.{part}.") for part in ("k", "v", "mlp")),
    (".message_gate_proj.weight", ".gain_weight"),
    (".forget_gate_proj.weight", ".forget_weight"),
    (".final_input.", ".attn_res.output_"),
)


def inkling2_published(state: State) -> State:
    """Learned queries in lists of their own, those for the pass before in two arrays."""
    named: State = {}
    for name, array in state.items():
        if name == "model.message_input.query":
            ends, middle = array[:, [0, 3]], array[:, 1:3]
            for end, part in (("", ends), ("_kv", middle)):
                named[f"model.llm.middle_cycle_cross_pass{end}_queries"] = part.reshape(-1, array.shape[2])
            continue
        ours, theirs = next(pair for pair in _INKLING if name.startswith(pair[0]))
        name = name.replace(ours, theirs, 1)
        for ours, theirs in _INKLING2:
            name = name.replace(ours, theirs)
        if ".controllers." in name:
            name = name.replace(".down_proj.weight", ".down_weight")
        if name.endswith("_input.query"):
            _, _, _, place, kind, _ = name.split(".")
            part, own = ("attn", int(place) - 1) if kind == "attention_input" else ("mlp", int(place))
            name = f"model.llm.attn_res.{part}_queries.{own}"
        if name.endswith("embed.weight"):
            array = np.concatenate([array, np.ones_like(array[:8])])
        if name.endswith(".gate_up_proj"):
            halves = np.split(array, 2, axis=1)
            name, array = name.replace("gate_up_proj", "w13_weight"), np.stack(halves, 2).reshape(array.shape)
        named[name] = array
    return named


def padded_head(state: State) -> State:
    """As PLaMo 2's class makes it, with rows that no id has."""
    head = state["lm_head.weight"]
    return state | {"lm_head.weight": np.concatenate([head, np.ones_like(head[:8])])}


def phi4_with_adapters(state: State) -> State:
    """As of its authors, whose class holds an adapter for images and one for sound, and a tower."""
    named: State = {"model.embed_tokens_extend.image_embed.glb_GN": np.ones((1, 1, 4), np.float32)}
    for name, array in state.items():
        if "_proj." not in name:
            named[name] = array
            continue
        module = name.removesuffix(".weight")
        named[f"{module}.base_layer.weight"] = array
        for kind in ("speech", "vision"):
            named[f"{module}.lora_A.{kind}.weight"] = np.ones((2, array.shape[1]), np.float32)
            named[f"{module}.lora_B.{kind}.weight"] = np.ones((array.shape[0], 2), np.float32)
    return named


def filters_of_torch(state: State) -> State:
    return {n: x.swapaxes(1, 2) if n.endswith("conv1d.weight") else x for n, x in state.items()}


def rwkv_of_old(state: State) -> State:
    """With the shares of the token before in one array."""
    kept = {name: x for name, x in state.items() if ".attn.x_" not in name}
    for layer in (0, 1):
        parts = [state[f"model.layers.{layer}.attn.x_{part}"][0, 0] for part in "rwkvag"]
        kept[f"model.layers.{layer}.attn.x_x"] = np.stack(parts)
    return kept


def rwkv_by_mlx(state: State) -> State:
    heads = (".k_k", ".k_a", ".g_norm.weight", ".g_norm.bias")
    return {name: x.reshape(-1, 16) if name.endswith(heads) else x for name, x in state.items()}


def same(state: State) -> State:
    return state


_DBRX = {"w1": "gate_proj", "v1": "up_proj", "w2": "down_proj"}


def dbrx_by_mlx(state: State) -> State:
    out: State = {}
    for name, array in state.items():
        stem, found, matrix = name.rpartition(".experts.mlp.")
        parts = np.split(array, 6) if found else []
        out |= {
            f"{stem}.experts.{i}.{matrix}.weight": one.T if matrix == "w2" else one
            for i, one in enumerate(parts)
        } or {name: array}
    return out


def dbrx_in_stacks(state: State) -> State:
    """As packages have them that were made anew."""
    out: State = {}
    for name, array in state.items():
        stem, found, matrix = name.rpartition(".experts.mlp.")
        stack = array.reshape(6, -1, 64) if found else array
        stack = stack.swapaxes(1, 2) if matrix == "w2" else stack
        out[f"{stem}.switch_mlp.{_DBRX[matrix]}.weight" if found else name] = stack
    return out
