"""Classes written here after other programs' code, in PyTorch, for kinds that no class in Python is at hand
for; with the face that makers of references ask of transformers' models (run by hand, where torch is
installed).

    nomic_bert with experts    huggingface/text-embeddings-inference, nomic.rs
    bert of JinaBert...        the same, jina.rs and jina_code.rs

Names of tensors are those of published files.
"""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from tests.support.mlx_models import MlxConfig


class OwnConfig(MlxConfig):
    """The fields of a file whose class is one of these."""

    @property
    def asked(self) -> set[str]:
        return set(self._fields) - {"architectures", "model_type"}

    def made(self) -> Any:
        return own_class(self._fields)(self)


def own_class(fields: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    """None: other programs have one."""
    if fields.get("moe_every_n_layers"):
        return NomicMoE
    if str(fields.get("architectures")).startswith("['JinaBert"):
        return JinaBert
    from tests.support.own_decoders import DECODERS  # which are made of what stands here
    from tests.support.own_folding import Rwkv

    return (DECODERS | {"rwkv5": Rwkv, "rwkv6": Rwkv}).get(fields["model_type"])


class Own(nn.Module):
    """What makers of references ask besides."""

    source: ClassVar[Mapping[str, str]]

    def __init__(self, config: OwnConfig) -> None:
        super().__init__()
        self.config, self.fields = config, SimpleNamespace(**config.to_dict())

    def save_pretrained(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config.to_dict()), encoding="utf-8")
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    def get_output_embeddings(self) -> None: ...

    def get_input_embeddings(self) -> None: ...

    def tie_weights(self) -> None: ...


def turned(x: torch.Tensor, theta: float) -> torch.Tensor:
    """[B, H, L, K], halves of heads turned by their positions."""
    length, size = x.shape[-2:]
    frequencies = theta ** (-torch.arange(0, size, 2).float() / size)
    angles = torch.arange(length).float()[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    one, other = x.chunk(2, -1)
    return torch.cat([one * cos - other * sin, other * cos + one * sin], -1)


def by_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class NomicMoE(Own):
    source: ClassVar[Mapping[str, str]] = {"text-embeddings-inference": "nomic.rs"}

    def __init__(self, config: OwnConfig) -> None:
        super().__init__(config)
        raw = self.fields
        self.embeddings = nn.Module()
        self.embeddings.word_embeddings = nn.Embedding(raw.vocab_size, raw.n_embd)
        self.embeddings.token_type_embeddings = nn.Embedding(raw.type_vocab_size, raw.n_embd)
        self.emb_ln = nn.LayerNorm(raw.n_embd, eps=raw.layer_norm_epsilon)
        self.encoder = nn.Module()
        self.encoder.layers = nn.ModuleList(_NomicLayer(raw, place) for place in range(raw.n_layer))

    def forward(self, input_ids: torch.Tensor) -> Any:
        table = self.embeddings
        x = table.word_embeddings(input_ids) + table.token_type_embeddings(torch.zeros_like(input_ids))
        x = self.emb_ln(x)
        for layer in self.encoder.layers:
            x = layer(x)
        return SimpleNamespace(last_hidden_state=x)


class _NomicLayer(nn.Module):
    def __init__(self, raw: Any, place: int) -> None:
        super().__init__()
        self.raw = raw
        self.attn = nn.Module()
        self.attn.Wqkv = nn.Linear(raw.n_embd, 3 * raw.n_embd)
        self.attn.out_proj = nn.Linear(raw.n_embd, raw.n_embd)
        self.norm1, self.norm2 = (nn.LayerNorm(raw.n_embd, eps=raw.layer_norm_epsilon) for _ in range(2))
        self.mlp = _NomicExperts(raw) if place % raw.moe_every_n_layers == 1 else _NomicMLP(raw)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (by_heads(part, self.raw.n_head) for part in self.attn.Wqkv(x).chunk(3, -1))
        theta = self.raw.rotary_emb_base
        seen = F.scaled_dot_product_attention(turned(q, theta), turned(k, theta), v)
        x = self.norm1(x + self.attn.out_proj(seen.transpose(1, 2).flatten(2)))
        return self.norm2(x + self.mlp(x))


class _NomicMLP(nn.Module):
    def __init__(self, raw: Any) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(raw.n_embd, raw.n_inner), nn.Linear(raw.n_inner, raw.n_embd)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class _NomicExperts(nn.Module):
    def __init__(self, raw: Any) -> None:
        super().__init__()
        self.raw = raw
        self.router, self.experts = nn.Module(), nn.Module()
        self.router.layer = nn.Linear(raw.n_embd, raw.num_experts, bias=False)
        self.experts.mlp = nn.Module()
        for name in ("w1", "w2"):
            stack = nn.Parameter(torch.empty(raw.num_experts * raw.n_inner, raw.n_embd))
            setattr(self.experts.mlp, name, stack)
        self.experts.bias = nn.Parameter(torch.empty(raw.n_embd))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares, chosen = self.router.layer(x).softmax(-1).topk(self.raw.moe_top_k, -1)
        size = self.raw.n_inner
        answer = torch.zeros_like(x)
        for expert in range(self.raw.num_experts):
            share = (shares * (chosen == expert)).sum(-1, keepdim=True)
            rows = slice(expert * size, (expert + 1) * size)
            inner = F.gelu(x @ self.experts.mlp.w1[rows].T)
            answer = answer + share * (inner @ self.experts.mlp.w2[rows])
        return answer + self.experts.bias


def falling(heads: int, length: int) -> torch.Tensor:
    """[heads, length, length]: scores fall with the distance, on both sides."""

    def powers(count: int) -> list[float]:
        start = 2.0 ** -(2.0 ** -(math.log2(count) - 3))
        return [start * start**place for place in range(count)]

    least = 2 ** int(math.log2(heads))
    slopes = torch.tensor([*powers(least), *powers(2 * least)[::2][: heads - least]])
    places = torch.arange(length)
    return -slopes[:, None, None] * (places[:, None] - places).abs()


class JinaBert(Own):
    source: ClassVar[Mapping[str, str]] = {"text-embeddings-inference": "jina.rs, jina_code.rs"}

    def __init__(self, config: OwnConfig) -> None:
        super().__init__(config)
        raw = self.fields
        self.embeddings = nn.Module()
        self.embeddings.word_embeddings = nn.Embedding(raw.vocab_size, raw.hidden_size)
        self.embeddings.token_type_embeddings = nn.Embedding(raw.type_vocab_size, raw.hidden_size)
        self.embeddings.LayerNorm = _norm(raw)
        kind = _JinaCodeLayer if "post-norm" in raw.auto_map["AutoModel"] else _JinaLayer
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(kind(raw) for _ in range(raw.num_hidden_layers))

    def forward(self, input_ids: torch.Tensor) -> Any:
        table = self.embeddings
        x = table.word_embeddings(input_ids) + table.token_type_embeddings(torch.zeros_like(input_ids))
        x = table.LayerNorm(x)
        bias = falling(self.fields.num_attention_heads, input_ids.shape[1])
        for layer in self.encoder.layer:
            x = layer(x, bias)
        return SimpleNamespace(last_hidden_state=x)


def _norm(raw: Any) -> nn.LayerNorm:
    return nn.LayerNorm(raw.hidden_size, eps=raw.layer_norm_eps)


class _JinaLayer(nn.Module):
    def __init__(self, raw: Any) -> None:
        super().__init__()
        self.raw, hidden, inner = raw, raw.hidden_size, raw.intermediate_size
        self.attention, self.attention.output, self.mlp = nn.Module(), nn.Module(), nn.Module()
        self.attention.self = nn.Module()
        for part in ("query", "key", "value"):
            setattr(self.attention.self, part, nn.Linear(hidden, hidden))
        self.attention.output.dense, self.attention.output.LayerNorm = nn.Linear(hidden, hidden), _norm(raw)
        self.more(hidden, inner)

    def more(self, hidden: int, inner: int) -> None:
        self.mlp.gated_layers = nn.Linear(hidden, 2 * inner, bias=False)
        self.mlp.wo, self.mlp.layernorm = nn.Linear(inner, hidden), _norm(self.raw)

    def seen(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        own = self.attention.self
        q, k, v = self.normed(own.query(x), own.key(x), own.value(x))
        q, k, v = (by_heads(part, self.raw.num_attention_heads) for part in (q, k, v))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + bias
        seen = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return self.attention.output.LayerNorm(self.attention.output.dense(seen) + x)

    def normed(self, *parts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return parts

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        x = self.seen(x, bias)
        gate, up = self.mlp.gated_layers(x).chunk(2, -1)
        return self.mlp.layernorm(self.mlp.wo(F.gelu(gate) * up) + x)


class _JinaCodeLayer(_JinaLayer):
    def more(self, hidden: int, inner: int) -> None:
        self.attention.self.layer_norm_q, self.attention.self.layer_norm_k = _norm(self.raw), _norm(self.raw)
        self.mlp.up_gated_layer = nn.Linear(hidden, 2 * inner, bias=False)
        self.mlp.down_layer = nn.Linear(inner, hidden)
        self.layer_norm_1, self.layer_norm_2 = _norm(self.raw), _norm(self.raw)

    def normed(self, *parts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        own = self.attention.self
        return own.layer_norm_q(parts[0]), own.layer_norm_k(parts[1]), parts[2]

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        x = self.layer_norm_1(self.seen(x, bias) + x)
        up, gate = self.mlp.up_gated_layer(x).chunk(2, -1)
        return self.layer_norm_2(self.mlp.down_layer(up * F.gelu(gate)) + x)
