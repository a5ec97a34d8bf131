"""How a family of models describes itself: the record with which its file ends.

A family is one module in this folder. What others need to know of it (is there a draft head, which parameters
keep their precision, which tensors are for images) they read from this record, and never by looking for names
in the module.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from runtime.cache.layout import LayerSpec
from runtime.records import dataclass
from runtime.tensors.checkpoint import PLAIN, Checkpoint, always

if TYPE_CHECKING:
    import mlx.core as mx

    from runtime.cache.protocol import Caches, Rotate
    from runtime.step import Inputs, Step


class Network(Protocol):
    """The modules of a model: an `mlx.nn.Module` with these three calls.

    B rows, L tokens, D hidden size, V vocabulary. `caches` holds one entry per layer of the layout, None
    where a layer remembers nothing.
    """

    def __call__(self, step: "Step", caches: "Caches") -> "mx.array":
        """The last layer's hidden states [B, L, D], normed, for the step's inputs.

        NotSupported for inputs that the network cannot take: embeddings without ids if ids are looked up in
        several places, positions if no layer uses any.
        """
        ...

    def embed(self, ids: "mx.array", step: "Step | None" = None) -> "mx.array":
        """int32 [B, L] -> what enters the first layer, [B, L, D]; a step may bring that in place of ids.

        step: the one that the ids belong to, if its rows may have adapters.
        """
        ...

    def logits(self, hidden: "mx.array", step: "Step | None" = None) -> "mx.array":
        """[..., D] -> [..., V]. step: the one that the hidden states [B, ..., D] belong to, if its rows may
        have adapters.
        """
        ...

    @property
    def shifts(self) -> "Sequence[Rotate | None]":
        """For each layer how its keys are rotated to other positions, None if they cannot be; () for no
        layer.
        """
        ...


class Reader(Network, Protocol):
    """A Network whose prompts are read by an encoder; the rest of it writes the answer."""

    def encode(self, prompt: "Inputs", step: "Step", caches: "Caches") -> None:
        """Read whole prompts [B, T], one for each row of `step`, which begins these rows and follows."""
        ...


class Config(Protocol):
    """The fields that every family's frozen config has, beside its own."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def context_length(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Head:
    """A draft head in the target's own file: a second network, built and filled as the target's is."""

    layout: Callable[[Any], list[LayerSpec]]
    """What each of its layers remembers, by the target's config."""
    build: Callable[[Any], Any]
    """Its modules, by the target's config. Called with (step, caches, hidden, depth=): see
    `draft_heads.DraftHead`."""
    adapt: Callable[[Any, "dict[str, mx.array]"], "dict[str, mx.array]"]
    """Its tensors, from all of the checkpoint's; {} if the file has no head."""


RATES = (".A_log", ".dt_bias", ".D")
"""Parameters of recurrent layers that go through exponentials."""
CORRECTIONS = (".e_score_correction_bias",)
"""Biases of the choice of experts, which differ by less than a 16-bit float can tell."""


@dataclass(frozen=True, slots=True)
class Family:
    parse: Callable[[Mapping[str, Any]], Any]
    """config.json -> the family's frozen Config; UnsupportedModel for a value it would compute wrongly."""
    layout: Callable[[Any], list[LayerSpec]]
    """What each layer remembers, one entry per layer."""
    build: Callable[[Any], Any]
    """A Network with lazy (unallocated) weights, named as the checkpoint's tensors."""
    adapt: Callable[[Any, "dict[str, mx.array]"], "dict[str, mx.array]"]
    """Checkpoint names and layouts -> those of `build`. Lazy: no array is evaluated."""
    wide: tuple[str, ...] = ()
    """Endings of names of parameters, in `build`, that never become narrower than they are stored."""
    head: Head | None = None
    """The draft head that files of the family may hold; None if none is run here."""
    checkpoint: Callable[[Mapping[str, Any]], Checkpoint] = always(PLAIN)  # frozen
    """What is particular to its files, given the text model's config, even one that `parse` refuses."""
    drafts_as: Literal["model", "assistant", "block"] = "model"
    """How it drafts for another model: as any language model does, or inside its target (an assistant reads
    the target's layer memory, a block draft its hidden states). The latter two cannot run by themselves.
    """
    start_id: Callable[[Any], int] | None = None
    """The id with which answers begin, if an encoder reads the prompt (see Reader); None: the answer
    continues the prompt.
    """
    writes: bool = True
    """Does it write text? False: a bidirectional encoder, which makes embeddings only. It has no next token
    and no `logits`, reads texts whole, and remembers nothing.
    """
    both_ways: bool = False
    """Does it also run a config with `is_causal: false` (`both_ways.looking_ahead`)?"""
    variant: "Callable[[Mapping[str, Any]], Family | str | None] | None" = None
    """The family, or the name of its file, that runs a config in this one's place because of what the config
    says besides its name; gives None if this one runs it."""

    def keeps_dtype(self, name: str) -> bool:
        return name.endswith(self.wide)
