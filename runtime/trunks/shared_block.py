"""Recurrent layers, and one or a few transformer blocks that many of them share (Zamba 1 and 2).

A hybrid layer runs a shared block over the stream beside the embeddings, and adds its answer to what its
own mixer reads. It has two memories; the layout lists the attention's, then the mixer's.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import mlx.core as mx
import mlx.nn as nn

from runtime.cache import layout
from runtime.cache.protocol import AttentionCache, Caches, ScanningCache, by_layout
from runtime.config.decoder import DecoderConfig
from runtime.nn.linear import MATRICES, embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm
from runtime.nn.operations import ops
from runtime.nn.residual.block import Block as Sublayers
from runtime.nn.residual.block import NormedSublayer
from runtime.nn.residual.sublayer import defined_together, parts_of
from runtime.parts.heads import Heads
from runtime.parts.streams import AppendInput, ReadAppended, UpdateAppended
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.experts import Weights


@dataclass(frozen=True, slots=True)
class SharingConfig(DecoderConfig):
    hybrid: tuple[bool, ...]
    """Of each layer: it also runs a shared block. The k-th such layer runs block k mod `blocks`."""
    blocks: int

    @property
    def uses(self) -> int:
        """How many times a shared block is run."""
        return sum(self.hybrid)


def sharing_layout(config: SharingConfig, mixer: layout.Recurrent) -> list[layout.LayerSpec]:
    """mixer: what one remembers."""
    full = layout.Full(config.kv_heads, config.head_dim)
    return [spec for hybrid in config.hybrid for spec in ((full, mixer) if hybrid else (mixer,))]


def without_repeats(config: SharingConfig, weights: Weights) -> Weights:
    """Shared blocks once, where a file repeats them at every layer that runs them."""
    hybrids = [i for i, hybrid in enumerate(config.hybrid) if hybrid]
    repeats = tuple(f"model.layers.{i}.shared_transformer." for i in hybrids[config.blocks :])
    return {name: array for name, array in weights.items() if not name.startswith(repeats)}


class Mixer(Protocol):
    def __call__(self, x: mx.array, step: Step, cache: ScanningCache) -> mx.array:
        """[B, L, D] -> [B, L, D]"""
        ...


class SharedHeads(Protocol):
    def heads(self) -> Heads:
        """Of one use."""
        ...


class Block(Protocol):
    """A block that is shared."""

    @property
    def self_attn(self) -> "SharedHeads": ...

    def __call__(
        self, x: mx.array, embedded: mx.array, use: int, step: Step, cache: AttentionCache
    ) -> mx.array:
        """The stream and the embeddings [B, L, D] -> [B, L, D], the `use`-th time that a block is run."""
        ...

    def parts_for(self, use: int, heads: Heads) -> tuple[AppendInput, UpdateAppended, UpdateAppended] | None:
        """What it does the `use`-th time, as kernels have it; None: they have not."""
        ...


class Recurrent(Sublayers):
    """x + mixer(norm(x)). In a hybrid layer the mixer hears what a shared block answered, too, which is not
    carried on.
    """

    def __init__(self, config: SharingConfig, mixer: Mixer) -> None:
        super().__init__()
        self.mamba = mixer
        self.input_layernorm = RMSNorm(config.hidden_size, eps=config.norm_eps)

    def __call__(
        self, x: mx.array, step: Step, memory: ScanningCache, embedded: mx.array | None = None
    ) -> mx.array:
        """embedded: what hybrid layers read, too."""
        del embedded
        return self.hear(x, x, step, memory)

    def hear(self, x: mx.array, heard: mx.array, step: Step, memory: ScanningCache) -> mx.array:
        """x + mixer(norm(heard))"""
        return x + self.mamba(self.input_layernorm(heard), step, memory)

    def sublayers(self) -> tuple[NormedSublayer]:
        return ((self.mamba, self.input_layernorm, None),)


class Hybrid(Module):
    """The `use`-th layer to run a shared block. The first layers to run one own it."""

    def __init__(
        self, config: SharingConfig, use: int, block: Block, mixer: Mixer, lender: int | None
    ) -> None:
        """lender: the layer that owns its block; None: it does itself."""
        super().__init__()
        if lender is None:
            self.shared_transformer = block
        self.linear = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.mamba_decoder = Recurrent(config, mixer)
        self._use, self._block, self._lender = use, block, lender
        self._heads: Heads | None = None

    def __call__(
        self, x: mx.array, step: Step, caches: tuple[AttentionCache, ScanningCache], embedded: mx.array
    ) -> mx.array:
        cache, memory = caches
        answered = linear(self.linear, self._block(x, embedded, self._use, step, cache), step)
        return self.mamba_decoder.hear(x, x + answered, step, memory)

    @property
    def borrows(self) -> tuple[int, str] | None:
        """The layer whose block it runs, and by what name that has it; None: its own."""
        return None if self._lender is None else (self._lender, "shared_transformer")

    def sublayer_parts(self) -> tuple[AppendInput, UpdateAppended, UpdateAppended, ReadAppended] | None:
        """See `runtime.nn.residual.sublayer.sublayer_parts_of`."""
        decoder = self.mamba_decoder
        self._heads = heads = self._heads or self._block.self_attn.heads()
        shared = self._block.parts_for(self._use, heads)
        mixed = parts_of(decoder.mamba, decoder.input_layernorm, None)
        as_called = defined_together(type(self), "__call__", "sublayer_parts") and type(decoder) is Recurrent
        if shared is None or mixed is None or not as_called or type(self.linear) not in MATRICES:
            return None
        return *shared, ReadAppended(self.linear, mixed)


class SharingTrunk(Module):
    in_turn: ClassVar[str] = "layers"
    for_layers: ClassVar[tuple[str, ...]] = ("embed_tokens",)

    def __init__(self, config: SharingConfig, blocks: Sequence[Block], mixer: Callable[[], Mixer]) -> None:
        """blocks: one of each that is shared. mixer: makes that of a layer."""
        super().__init__()
        self.memories = tuple(2 if hybrid else 1 for hybrid in config.hybrid)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = _layers(config, blocks, mixer)
        self.final_layernorm = RMSNorm(config.hidden_size, eps=config.norm_eps)
        self._turned = config.ropes[0] is not None

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        if not self._turned:
            step.refuse_positions("no layer of this network goes by positions")
        x = step.embedded(self.embed)
        memories = iter(by_layout(caches))
        own: list[Any] = [
            (next(memories), next(memories)) if count == 2 else next(memories) for count in self.memories
        ]
        return self.final_layernorm(ops.table.layers(self.layers, x, step, own, x[:, :, None]))

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embed_tokens, ids, step)


def _layers(
    config: SharingConfig, blocks: Sequence[Block], mixer: Callable[[], Mixer]
) -> list[Recurrent | Hybrid]:
    layers: list[Recurrent | Hybrid] = []
    places: list[int] = []
    for place, hybrid in enumerate(config.hybrid):
        if not hybrid:
            layers.append(Recurrent(config, mixer()))
            continue
        use, block = len(places), len(places) % config.blocks
        lender = places[block] if use >= config.blocks else None
        layers.append(Hybrid(config, use, blocks[block], mixer(), lender))
        places.append(place)
    return layers
