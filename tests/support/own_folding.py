"""RWKV-5 and 6 written here after other programs' code: llama.cpp's rwkv6.cpp, and their authors'
modeling_rwkv5.py and modeling_rwkv6.py.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.own_models import Own, OwnConfig


def _vector(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape))


def _matrix(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def _earlier(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (0, 0, 1, -1))


class _Folds(nn.Module):
    def __init__(self, raw: Any) -> None:
        super().__init__()
        self.raw, self.sixth, hidden = raw, raw.model_type == "rwkv6", raw.hidden_size
        heads, size = hidden // raw.head_size, raw.head_size
        if self.sixth:
            for part in "xwkvrg":
                setattr(self, f"time_maa_{part}", _vector(1, 1, hidden))
            self.time_maa_w1, self.time_maa_w2 = _vector(hidden, 5 * 32), _vector(5, 32, hidden)
            self.time_decay = _vector(1, 1, hidden)
            self.time_decay_w1, self.time_decay_w2 = _vector(hidden, 64), _vector(64, hidden)
        else:
            for part in ("key", "value", "receptance", "gate"):
                setattr(self, f"time_mix_{part}", _vector(1, 1, hidden))
            self.time_decay = _vector(heads, size)
        self.time_faaaa = _vector(heads, size)
        for part in ("receptance", "key", "value", "gate", "output"):
            setattr(self, part, _matrix(hidden, hidden))
        self.ln_x = nn.GroupNorm(heads, hidden)

    def _mixed(self, x: torch.Tensor) -> list[torch.Tensor]:
        """For decays, keys, values, queries and gates."""
        gap = _earlier(x) - x
        if not self.sixth:
            shares = self.time_mix_key, self.time_mix_value, self.time_mix_receptance, self.time_mix_gate
            return [x, *(x * share + _earlier(x) * (1 - share) for share in shares)]
        low = torch.tanh((x + gap * self.time_maa_x) @ self.time_maa_w1).unflatten(-1, (5, -1))
        more = torch.einsum("blpr,prd->pbld", low, self.time_maa_w2)
        shares = self.time_maa_w, self.time_maa_k, self.time_maa_v, self.time_maa_r, self.time_maa_g
        return [x + gap * (share + own) for share, own in zip(shares, more, strict=True)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raw, size = self.raw, self.raw.head_size
        w, k, v, r, g = self._mixed(x)
        k, v, r = (
            part.unflatten(-1, (-1, size)) for part in (self.key(k), self.value(v), self.receptance(r))
        )
        rate = self.time_decay.flatten()
        if self.sixth:
            rate = rate + torch.tanh(w @ self.time_decay_w1) @ self.time_decay_w2
        decay = torch.exp(-torch.exp(rate)).expand(x.shape).unflatten(-1, (-1, size))
        state = x.new_zeros(x.shape[0], x.shape[-1] // size, size, size)
        found: list[torch.Tensor] = []
        for t in range(x.shape[1]):
            told = k[:, t, :, :, None] * v[:, t, :, None, :]
            found.append((r[:, t, :, None] @ (self.time_faaaa[..., None] * told + state)).squeeze(-2))
            state = told + decay[:, t, ..., None] * state
        y = torch.stack(found, 1).flatten(2)
        eps = 1e-5 * raw.head_size_divisor**2
        y = F.group_norm(y.flatten(0, 1), x.shape[-1] // size, self.ln_x.weight, self.ln_x.bias, eps)
        return self.output(y.view_as(x) * F.silu(self.gate(g)))


class _FeedForward(nn.Module):
    def __init__(self, raw: Any) -> None:
        super().__init__()
        self.sixth, hidden, inner = raw.model_type == "rwkv6", raw.hidden_size, raw.intermediate_size
        self.names = ("time_maa_k", "time_maa_r") if self.sixth else ("time_mix_key", "time_mix_receptance")
        for name in self.names:
            setattr(self, name, _vector(1, 1, hidden))
        self.key, self.value = _matrix(hidden, inner), _matrix(inner, hidden)
        self.receptance = _matrix(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares = (getattr(self, name) for name in self.names)
        before = _earlier(x)
        k, r = (before * s + x * (1 - s) if self.sixth else x * s + before * (1 - s) for s in shares)
        return torch.sigmoid(self.receptance(r)) * self.value(F.relu(self.key(k)).square())


class _Block(nn.Module):
    def __init__(self, raw: Any, place: int) -> None:
        super().__init__()
        norms = ("ln1", "ln2", *["pre_ln"] * (place == 0))
        for name in norms:
            setattr(self, name, nn.LayerNorm(raw.hidden_size, raw.layer_norm_epsilon))
        self.attention, self.feed_forward = _Folds(raw), _FeedForward(raw)
        every = raw.rescale_every
        self.share = 0.5 ** (place // every) if every > 0 else 1.0
        self.halves = every > 0 and (place + 1) % every == 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pre_ln(x) if hasattr(self, "pre_ln") else x
        x = x + self.share * self.attention(self.ln1(x))
        x = x + self.share * self.feed_forward(self.ln2(x))
        return x / 2 if self.halves else x


class Rwkv(Own):
    source: ClassVar[Mapping[str, str]] = {"llama.cpp": "rwkv6.cpp", "authors": "v6-Finch-1B6-HF"}

    def __init__(self, config: OwnConfig) -> None:
        super().__init__(config)
        raw = self.fields
        self.rwkv = nn.Module()
        self.rwkv.embeddings = nn.Embedding(raw.vocab_size, raw.hidden_size)
        self.rwkv.blocks = nn.ModuleList(_Block(raw, place) for place in range(raw.num_hidden_layers))
        self.rwkv.ln_out = nn.LayerNorm(raw.hidden_size)
        if not raw.tie_word_embeddings:
            self.head = _matrix(raw.hidden_size, raw.vocab_size)

    def forward(self, input_ids: torch.Tensor) -> Any:
        x = self.rwkv.embeddings(input_ids)
        for block in self.rwkv.blocks:
            x = block(x)
        table = self.rwkv.embeddings if self.fields.tie_word_embeddings else self.head
        return SimpleNamespace(logits=self.rwkv.ln_out(x) @ table.weight.T)
