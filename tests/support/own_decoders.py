"""Decoders written here after other programs' code, as `own_models` has encoders.

smallthinker    its authors' modeling_smallthinker.py, and llama.cpp's smallthinker.cpp
grove_moe       its authors' modeling_grove_moe.py
orion           llama.cpp's orion.cpp
plm             llama.cpp's plm.cpp
codeshell       its authors' modeling_codeshell.py, and llama.cpp's codeshell.cpp
arctic          its authors' modeling_arctic.py, and llama.cpp's arctic.cpp
chatglm         its authors' modeling_chatglm.py, and vLLM's chatglm.py
jais            its authors' modeling_btlm.py, and vLLM's jais.py
"""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import nn
from transformers.activations import ACT2FN

from tests.support.own_models import Own, OwnConfig, by_heads, turned


def matrix(inputs: int, outputs: int, *, bias: bool = False) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=bias)


class Norm(nn.Module):
    """Of root mean squares."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def seen(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None = None, window: int | None = None
) -> torch.Tensor:
    """By heads [B, H, L, K], keys of fewer heads -> [B, L, H * V]."""
    k, v = (part.repeat_interleave(q.shape[1] // part.shape[1], 1) for part in (k, v))
    ages = torch.arange(q.shape[2])[:, None] - torch.arange(q.shape[2])
    hidden = (ages < 0) | (ages >= (window or q.shape[2]))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    shares = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return (shares @ v).transpose(1, 2).flatten(2)


class Attention(nn.Module):
    """Llama's. theta None: without positions."""

    def __init__(
        self, raw: Any, *, theta: float | None, window: int | None = None, normed: bool = False, size: int = 0
    ) -> None:
        super().__init__()
        self.heads, self.groups, hidden = raw.num_attention_heads, raw.num_key_value_heads, raw.hidden_size
        size = size or getattr(raw, "head_dim", hidden // self.heads)
        bias = getattr(raw, "attention_bias", False)
        self.q_proj = matrix(hidden, self.heads * size, bias=bias)
        self.k_proj, self.v_proj = (matrix(hidden, self.groups * size, bias=bias) for _ in range(2))
        self.o_proj = matrix(self.heads * size, hidden, bias=bias)
        if normed:
            self.q_norm, self.k_norm = Norm(size, raw.rms_norm_eps), Norm(size, raw.rms_norm_eps)
        self.theta, self.window, self.normed = theta, window, normed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = by_heads(self.q_proj(x), self.heads)
        k, v = (by_heads(part(x), self.groups) for part in (self.k_proj, self.v_proj))
        if self.normed:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.theta is not None:
            q, k = turned(q, self.theta), turned(k, self.theta)
        return self.o_proj(seen(q, k, v, window=self.window))


class Gated(nn.Module):
    """names: of gate, up and down."""

    def __init__(
        self,
        hidden: int,
        inner: int,
        names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
        act: Callable[[torch.Tensor], torch.Tensor] = F.silu,
    ) -> None:
        super().__init__()
        self.names, self.act = names, act
        for name, sizes in zip(names, ((hidden, inner), (hidden, inner), (inner, hidden)), strict=True):
            setattr(self, name, matrix(*sizes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up, down = (getattr(self, name) for name in self.names)
        return down(self.act(gate(x)) * up(x))


def mixed(
    experts: nn.ModuleList, x: torch.Tensor, chosen: torch.Tensor, shares: torch.Tensor
) -> torch.Tensor:
    answer = torch.zeros_like(x)
    for place, expert in enumerate(experts):
        share = (shares * (chosen == place)).sum(-1, keepdim=True)
        answer = answer + share * expert(x)
    return answer


class Decoder(Own):
    """layer(raw, place) makes each layer; a head of its own where the file says so."""

    layer: ClassVar[Callable[[Any, int], nn.Module]]
    norm: ClassVar[Callable[[int, float], nn.Module]] = Norm

    def __init__(self, config: OwnConfig) -> None:
        super().__init__(config)
        raw = self.fields
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(raw.vocab_size, raw.hidden_size)
        self.model.layers = nn.ModuleList(
            type(self).layer(raw, place) for place in range(raw.num_hidden_layers)
        )
        self.model.norm = type(self).norm(raw.hidden_size, raw.rms_norm_eps)
        if not raw.tie_word_embeddings:
            self.lm_head = matrix(raw.hidden_size, raw.vocab_size)

    def forward(self, input_ids: torch.Tensor) -> Any:
        x = self.model.embed_tokens(input_ids)
        for layer in self.model.layers:
            x = layer(x)
        x = self.model.norm(x)
        table = self.model.embed_tokens.weight if self.fields.tie_word_embeddings else self.lm_head.weight
        return SimpleNamespace(logits=x @ table.T)


class _Layer(nn.Module):
    def __init__(self, attention: nn.Module, mlp: nn.Module, norm: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.self_attn, self.mlp = attention, mlp
        self.input_layernorm, self.post_attention_layernorm = norm(), norm()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class _SmallThinkerLayer(nn.Module):
    def __init__(self, raw: Any, place: int) -> None:
        super().__init__()
        theta = raw.rope_theta if raw.rope_layout[place] else None
        window = raw.sliding_window_size if raw.sliding_window_layout[place] else None
        self.self_attn = Attention(raw, theta=theta, window=window)
        self.input_layernorm, self.post_attention_layernorm = (
            Norm(raw.hidden_size, raw.rms_norm_eps) for _ in range(2)
        )
        self.raw, self.block_sparse_moe = raw, nn.Module()
        hidden, inner, count = raw.hidden_size, raw.moe_ffn_hidden_size, raw.moe_num_primary_experts
        self.block_sparse_moe.primary_router = matrix(hidden, count)
        self.block_sparse_moe.experts = nn.ModuleList(
            Gated(hidden, inner, ("gate", "up", "down"), F.relu) for _ in range(count)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.block_sparse_moe.primary_router(x)
        x = x + self.self_attn(self.input_layernorm(x))
        top, chosen = scores.topk(self.raw.moe_num_active_primary_experts, -1)
        if self.raw.moe_primary_router_apply_softmax:
            shares = top.softmax(-1)
        else:
            shares = top.sigmoid() / top.sigmoid().sum(-1, keepdim=True)
        normed = self.post_attention_layernorm(x)
        return x + mixed(self.block_sparse_moe.experts, normed, chosen, shares)


class SmallThinker(Decoder):
    source: ClassVar[Mapping[str, str]] = {"authors": "SmallThinker-4BA0.6B", "llama.cpp": "smallthinker.cpp"}
    layer = _SmallThinkerLayer


class _GroveMixture(nn.Module):
    def __init__(self, raw: Any) -> None:
        super().__init__()
        hidden, count = raw.hidden_size, raw.num_experts
        self.gate, self.chosen = matrix(hidden, count), raw.num_experts_per_tok
        self.experts = nn.ModuleList(Gated(hidden, raw.moe_intermediate_size) for _ in range(count))
        self.chunk_experts = nn.ModuleList(Gated(hidden, 128) for _ in range(count // 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares, chosen = self.gate(x).softmax(-1).topk(self.chosen, -1)
        shares = shares / shares.sum(-1, keepdim=True)
        small = mixed(self.chunk_experts, x, chosen // 2, shares)
        return 0.05 * small + mixed(self.experts, x, chosen, shares)


def _grove_layer(raw: Any, place: int) -> nn.Module:
    sparse = place not in raw.mlp_only_layers and (place + 1) % raw.decoder_sparse_step == 0
    mlp = _GroveMixture(raw) if sparse else Gated(raw.hidden_size, raw.intermediate_size)
    attention = Attention(raw, theta=raw.rope_theta, normed=True)
    return _Layer(attention, mlp, lambda: Norm(raw.hidden_size, raw.rms_norm_eps))


class GroveMoE(Decoder):
    source: ClassVar[Mapping[str, str]] = {"authors": "GroveMoE-Inst"}
    layer = _grove_layer


def _orion_layer(raw: Any, _place: int) -> nn.Module:
    attention = Attention(raw, theta=raw.rope_theta)
    mlp = Gated(raw.hidden_size, raw.intermediate_size)
    return _Layer(attention, mlp, lambda: nn.LayerNorm(raw.hidden_size, raw.rms_norm_eps))


class Orion(Decoder):
    source: ClassVar[Mapping[str, str]] = {"llama.cpp": "orion.cpp"}
    layer, norm = _orion_layer, nn.LayerNorm


class _PlmAttention(nn.Module):
    def __init__(self, raw: Any) -> None:
        super().__init__()
        self.raw, hidden, heads = raw, raw.hidden_size, raw.num_attention_heads
        content, position, value = raw.qk_nope_head_dim, raw.qk_rope_head_dim, raw.v_head_dim
        self.q_proj = matrix(hidden, heads * (content + position))
        self.kv_a_proj_with_mqa = matrix(hidden, raw.kv_lora_rank + position)
        self.kv_a_layernorm = Norm(raw.kv_lora_rank, raw.rms_norm_eps)
        self.kv_b_proj = matrix(raw.kv_lora_rank, heads * (content + value))
        self.o_proj = matrix(heads * value, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raw, heads = self.raw, self.raw.num_attention_heads
        content, position, value = raw.qk_nope_head_dim, raw.qk_rope_head_dim, raw.v_head_dim
        q, q_turned = by_heads(self.q_proj(x), heads).split([content, position], -1)
        latent, k_turned = self.kv_a_proj_with_mqa(x).split([raw.kv_lora_rank, position], -1)
        both = by_heads(self.kv_b_proj(self.kv_a_layernorm(latent)), heads)
        k, v = both.split([content, value], -1)
        k_turned = self._turned(k_turned[:, None]).expand(-1, heads, -1, -1)
        q = torch.cat([q, self._turned(q_turned)], -1)
        return self.o_proj(seen(q, torch.cat([k, k_turned], -1), v))

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        """Neighbours together."""
        halves = x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
        return turned(halves, self.raw.rope_theta).unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)


class _Squared(nn.Module):
    def __init__(self, raw: Any) -> None:
        super().__init__()
        self.up_proj = matrix(raw.hidden_size, raw.intermediate_size)
        self.down_proj = matrix(raw.intermediate_size, raw.hidden_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.relu(self.up_proj(x)).square())


def _plm_layer(raw: Any, _place: int) -> nn.Module:
    return _Layer(_PlmAttention(raw), _Squared(raw), lambda: Norm(raw.hidden_size, raw.rms_norm_eps))


class Plm(Decoder):
    source: ClassVar[Mapping[str, str]] = {"llama.cpp": "plm.cpp"}
    layer = _plm_layer


class _CodeShellLayer(nn.Module):
    def __init__(self, raw: Any) -> None:
        super().__init__()
        hidden, self.raw = raw.n_embd, raw
        self.shared = raw.num_query_groups * hidden // raw.n_head
        self.ln_1, self.ln_2 = (nn.LayerNorm(hidden, raw.layer_norm_epsilon) for _ in range(2))
        self.attn, self.mlp = nn.Module(), nn.Module()
        self.attn.c_attn = matrix(hidden, hidden + 2 * self.shared, bias=True)
        self.attn.c_proj = matrix(hidden, hidden, bias=True)
        self.mlp.c_fc = matrix(hidden, raw.n_inner or 4 * hidden, bias=True)
        self.mlp.c_proj = matrix(raw.n_inner or 4 * hidden, hidden, bias=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raw = self.raw
        q, k, v = self.attn.c_attn(self.ln_1(x)).split([raw.n_embd, self.shared, self.shared], -1)
        q, k, v = by_heads(q, raw.n_head), *(by_heads(part, raw.num_query_groups) for part in (k, v))
        scale = None if raw.scale_attn_weights else 1.0
        x = x + self.attn.c_proj(seen(turned(q, 10000.0), turned(k, 10000.0), v, scale))
        return x + self.mlp.c_proj(ACT2FN[raw.activation_function](self.mlp.c_fc(self.ln_2(x))))


class CodeShell(Own):
    source: ClassVar[Mapping[str, str]] = {"authors": "CodeShell-7B", "llama.cpp": "codeshell.cpp"}

    def __init__(self, config: OwnConfig) -> None:
        super().__init__(config)
        raw = self.fields
        self.transformer = nn.Module()
        self.transformer.wte = nn.Embedding(raw.vocab_size, raw.n_embd)
        self.transformer.h = nn.ModuleList(_CodeShellLayer(raw) for _ in range(raw.n_layer))
        self.transformer.ln_f = nn.LayerNorm(raw.n_embd, raw.layer_norm_epsilon)
        if not raw.tie_word_embeddings:
            self.lm_head = matrix(raw.n_embd, raw.vocab_size)

    def forward(self, input_ids: torch.Tensor) -> Any:
        x = self.transformer.wte(input_ids)
        for layer in self.transformer.h:
            x = layer(x)
        x = self.transformer.ln_f(x)
        table = self.transformer.wte.weight if self.fields.tie_word_embeddings else self.lm_head.weight
        return SimpleNamespace(logits=x @ table.T)


class _ArcticLayer(nn.Module):
    def __init__(self, raw: Any, place: int) -> None:
        super().__init__()
        hidden, inner, count, names = raw.hidden_size, raw.intermediate_size, raw.num_local_experts, _NUMBERS
        self.self_attn = Attention(raw, theta=raw.rope_theta)
        self.sparse = (place + 1) % raw.moe_layer_frequency == 0
        self.beside, self.chosen = raw.parallel_attn_mlp_res and self.sparse, raw.num_experts_per_tok
        norms = ("input_layernorm", "post_attention_layernorm", *["residual_layernorm"] * self.beside)
        for name in norms:
            setattr(self, name, Norm(hidden, raw.rms_norm_eps))
        moe = self.block_sparse_moe = nn.Module()
        if self.sparse:
            moe.gate = matrix(hidden, count)
            moe.experts = nn.ModuleList(Gated(hidden, inner, names) for _ in range(count))
        else:
            moe.mlp = Gated(hidden, inner, names)
        if self.beside:
            self.residual_mlp = Gated(hidden, hidden, names)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heard = x + self.self_attn(self.input_layernorm(x))
        if self.beside:
            heard = heard + self.residual_mlp(self.residual_layernorm(heard))
        normed = self.post_attention_layernorm(x if self.beside else heard)
        if not self.sparse:
            return heard + self.block_sparse_moe.mlp(normed)
        shares, chosen = self.block_sparse_moe.gate(normed).softmax(-1).topk(self.chosen, -1)
        shares = shares / shares.sum(-1, keepdim=True)
        return heard + mixed(self.block_sparse_moe.experts, normed, chosen, shares)


_NUMBERS = "w1", "w3", "w2"


class Arctic(Decoder):
    source: ClassVar[Mapping[str, str]] = {"authors": "snowflake-arctic-base", "llama.cpp": "arctic.cpp"}
    layer = _ArcticLayer


class _ChatGLMLayer(nn.Module):
    def __init__(self, raw: Any) -> None:
        super().__init__()
        self.raw, hidden, inner = raw, raw.hidden_size, raw.ffn_hidden_size
        self.own, self.shared = (
            raw.kv_channels * heads for heads in (raw.num_attention_heads, raw.multi_query_group_num)
        )
        self.input_layernorm, self.post_attention_layernorm = (
            Norm(hidden, raw.layernorm_epsilon) for _ in range(2)
        )
        self.self_attention, self.mlp = nn.Module(), nn.Module()
        self.self_attention.query_key_value = matrix(
            hidden, self.own + 2 * self.shared, bias=raw.add_qkv_bias
        )
        self.self_attention.dense = matrix(self.own, hidden)
        self.mlp.dense_h_to_4h, self.mlp.dense_4h_to_h = matrix(hidden, 2 * inner), matrix(inner, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        joined = self.self_attention.query_key_value(self.input_layernorm(x))
        q, k, v = joined.split([self.own, self.shared, self.shared], -1)
        q = by_heads(q, self.raw.num_attention_heads)
        k, v = (by_heads(part, self.raw.multi_query_group_num) for part in (k, v))
        x = x + self.self_attention.dense(seen(self._turned(q), self._turned(k), v))
        gate, up = self.mlp.dense_h_to_4h(self.post_attention_layernorm(x)).chunk(2, -1)
        return x + self.mlp.dense_4h_to_h(F.silu(gate) * up)

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        """The first half of each head, neighbours together."""
        first, rest = x.chunk(2, -1)
        halves = first.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
        halves = turned(halves, 10000.0 * self.raw.rope_ratio)
        return torch.cat([halves.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2), rest], -1)


class ChatGLM(Own):
    source: ClassVar[Mapping[str, str]] = {"authors": "glm-4-9b", "vLLM": "chatglm.py"}

    def __init__(self, config: OwnConfig) -> None:
        super().__init__(config)
        raw = self.fields
        trunk = self.transformer = nn.Module()
        trunk.embedding, trunk.encoder = nn.Module(), nn.Module()
        trunk.embedding.word_embeddings = nn.Embedding(raw.padded_vocab_size, raw.hidden_size)
        trunk.encoder.layers = nn.ModuleList(_ChatGLMLayer(raw) for _ in range(raw.num_layers))
        trunk.encoder.final_layernorm = Norm(raw.hidden_size, raw.layernorm_epsilon)
        trunk.output_layer = matrix(raw.hidden_size, raw.padded_vocab_size)

    def forward(self, input_ids: torch.Tensor) -> Any:
        x = self.transformer.embedding.word_embeddings(input_ids)
        for layer in self.transformer.encoder.layers:
            x = layer(x)
        x = self.transformer.encoder.final_layernorm(x)
        return SimpleNamespace(logits=self.transformer.output_layer(x))


class _Turned(nn.Module):
    """A matrix stored with its inputs first, as GPT-2's."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


class _JaisLayer(nn.Module):
    def __init__(self, raw: Any) -> None:
        super().__init__()
        hidden, inner, self.raw = raw.n_embd, raw.n_inner, raw
        self.ln_1, self.ln_2 = (nn.LayerNorm(hidden, raw.layer_norm_epsilon) for _ in range(2))
        self.attn, self.mlp = nn.Module(), nn.Module()
        self.attn.c_attn, self.attn.c_proj = _Turned(hidden, 3 * hidden), _Turned(hidden, hidden)
        self.mlp.c_fc, self.mlp.c_fc2, self.mlp.c_proj = (
            _Turned(*sizes) for sizes in ((hidden, inner), (hidden, inner), (inner, hidden))
        )

    def forward(self, x: torch.Tensor, falls: torch.Tensor) -> torch.Tensor:
        q, k, v = (by_heads(part, self.raw.n_head) for part in self.attn.c_attn(self.ln_1(x)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2)
        if self.raw.scale_attn_weights:
            scores = scores / q.shape[-1] ** (1.0 if self.raw.mup_scale_qk_dot_by_d else 0.5)
        x = x + self.attn.c_proj(((scores + falls).softmax(-1) @ v).transpose(1, 2).flatten(2))
        normed = self.ln_2(x)
        return x + self.mlp.c_proj(self.mlp.c_fc(normed) * F.silu(self.mlp.c_fc2(normed)))


class Jais(Own):
    source: ClassVar[Mapping[str, str]] = {"authors": "btlm-3b-8k-base", "vLLM": "jais.py"}

    def __init__(self, config: OwnConfig) -> None:
        super().__init__(config)
        raw = self.fields
        self.transformer = nn.Module()
        self.transformer.wte = nn.Embedding(raw.vocab_size, raw.n_embd)
        self.transformer.h = nn.ModuleList(_JaisLayer(raw) for _ in range(raw.n_layer))
        self.transformer.ln_f = nn.LayerNorm(raw.n_embd, raw.layer_norm_epsilon)
        if not raw.tie_word_embeddings:
            self.lm_head = matrix(raw.n_embd, raw.vocab_size)

    def forward(self, input_ids: torch.Tensor) -> Any:
        raw, places = self.fields, torch.arange(input_ids.shape[1])
        x = self.transformer.wte(input_ids) * raw.mup_embeddings_scale
        ages = places[:, None] - places
        falls = -_steepness(raw.n_head)[:, None, None] * ages.masked_fill(ages < 0, 1 << 30)
        for layer in self.transformer.h:
            x = layer(x, falls)
        x = self.transformer.ln_f(x)
        table = self.transformer.wte.weight if raw.tie_word_embeddings else self.lm_head.weight
        return SimpleNamespace(logits=x @ table.T * (raw.mup_output_alpha * raw.mup_width_scale))


def _steepness(heads: int) -> torch.Tensor:
    """ALiBi's, of its authors."""
    power = 1 << (heads.bit_length() - 1)
    own = [2.0 ** (-8 * (place + 1) / power) for place in range(power)]
    return torch.tensor(own if power == heads else own + _steepness(2 * power)[::2][: heads - power].tolist())


DECODERS: dict[str, Callable[[Any], Any]] = {
    "smallthinker": SmallThinker,
    "grove_moe": GroveMoE,
    "orion": Orion,
    "plm": Plm,
    "codeshell": CodeShell,
    "arctic": Arctic,
    "chatglm": ChatGLM,
    "jais": Jais,
}
