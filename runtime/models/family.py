"""What a family of models says of itself: the record that its file ends with.

A family is one module in this folder. Whoever asks what a model can do (is there a draft head, which numbers
stay wide, which tensors are for images) reads it here; nobody looks for names in a module.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from runtime.cache.layout import LayerSpec
from runtime.models.checkpoint import PLAIN, Checkpoint, always
from runtime.records import dataclass

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
        """The last layer's normed hidden states [B, L, D] of what the step brings.

        NotSupported for inputs that the network cannot take: embeddings without ids where ids are looked up
        in several places, positions where no layer has any.
        """
        ...

    def embed(self, ids: "mx.array", step: "Step | None" = None) -> "mx.array":
        """int32 [B, L] -> what enters the first layer, [B, L, D]: what a step may bring in place of ids.

        step: whose ids they are, where its rows may have adapters.
        """
        ...

    def logits(self, hidden: "mx.array", step: "Step | None" = None) -> "mx.array":
        """[..., D] -> [..., V]. step: whose hidden states [B, ..., D] they are, where its rows may have
        adapters.
        """
        ...

    @property
    def shifts(self) -> "Sequence[Rotate | None]":
        """Per layer how its keys are moved to other positions, None where they cannot be; () for no layer."""
        ...


class Reader(Network, Protocol):
    """A Network whose prompts are read by an encoder; the rest of it writes the answer."""

    def encode(self, prompt: "Inputs", step: "Step", caches: "Caches") -> None:
        """Read whole prompts [B, T], one for each row of a step that begins; that step follows."""
        ...


class Config(Protocol):
    """What every family's frozen config can say; the rest is the family's own."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def context_length(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Head:
    """A draft head in the target's own file: another network, made and filled as the target's is."""

    layout: Callable[[Any], list[LayerSpec]]
    """What each of its layers remembers, by the target's config."""
    build: Callable[[Any], Any]
    """Its modules, by the target's config. Called with (step, caches, hidden, depth=): see
    `mtp.DraftHead`."""
    adapt: Callable[[Any, "dict[str, mx.array]"], "dict[str, mx.array]"]
    """Its tensors out of all of the checkpoint's, {} where the file has no head."""


RATES = (".A_log", ".dt_bias", ".D")
"""Numbers of recurrent layers that go through exponentials."""
CORRECTIONS = (".e_score_correction_bias",)
"""Of a choice of experts: they differ by less than a 16-bit float can tell."""


@dataclass(frozen=True, slots=True)
class Family:
    parse: Callable[[Mapping[str, Any]], Any]
    """config.json -> the family's frozen Config; UnsupportedModel for a value it would compute wrongly."""
    layout: Callable[[Any], list[LayerSpec]]
    """What each layer remembers, one entry per layer."""
    build: Callable[[Any], Any]
    """A Network with lazy (unallocated) weights, named as the tensors of the checkpoint."""
    adapt: Callable[[Any, "dict[str, mx.array]"], "dict[str, mx.array]"]
    """Checkpoint names and layouts -> those of `build`. Lazy: no array is evaluated."""
    wide: tuple[str, ...] = ()
    """How names of parameters end, in `build`, that never become narrower than they are stored."""
    head: Head | None = None
    """The draft head that files of the family may hold, where it is computed here."""
    checkpoint: Callable[[Mapping[str, Any]], Checkpoint] = always(PLAIN)  # frozen
    """What is particular to its files, by the text model's config, which may be one that `parse` refuses."""
    drafts_as: Literal["model", "assistant", "block"] = "model"
    """How it drafts for another: as any language model does, or inside its target, whose layer memory an
    assistant reads and whose hidden states a block draft does. Those two cannot run by themselves."""
    start_id: Callable[[Any], int] | None = None
    """The id that answers begin with, where an encoder reads the prompt (see Reader); None elsewhere: the
    answer goes on where the prompt ends."""
    writes: bool = True
    """Its answers are text. False: an encoder that looks both ways, which is asked for embeddings alone. It
    has no next token and no `logits`, reads texts whole, and remembers nothing."""
    both_ways: bool = False
    """Is a config with `is_causal: false` run, too (`models.both_ways`)?"""
    variant: "Callable[[Mapping[str, Any]], Family | str | None] | None" = None
    """What runs a config in its place that says something of itself besides its name, or the file with it;
    None of it: nothing."""

    def keeps_dtype(self, name: str) -> bool:
        return name.endswith(self.wide)
