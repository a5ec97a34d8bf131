"""What is particular to the files of a family of models: names of tensors, and formats that suit them.

It serves code that lists, converts or leaves out tensors without reading them; their numbers are the business
of `adapt`. MLX's names are those that mlx-lm and this runtime load.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from runtime.records import dataclass
from runtime.tensors.quantizing import Row
from runtime.tensors.towers import Towers, unwrapped

TRUNK = "model."
"""Prefix of the names of all tensors but the head's."""
_LAYER = re.compile(r"layers\.(\d{1,6})\.", re.ASCII)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    rows: tuple[Row, ...] = ()
    """Formats for its tensors, which come before those for all models."""
    default_layers: int = 0
    """Number of layers if the config does not say."""

    experts: str = "switch_mlp"
    """MLX's name for a stack that the checkpoint calls `experts`."""
    matrices: tuple[tuple[str, str], ...] = ()
    """(the checkpoint's, MLX's) names of an expert's projections, where they differ."""
    stacks: tuple[tuple[str, str], ...] = ()
    """(the checkpoint's, the usual) parts of names of stacks that hold all experts, such as
    `experts.gate_up_proj`."""
    piled: tuple[tuple[str, tuple[str, bool]], ...] = ()
    """Matrices that hold those of all experts, one below the other: (ending of the name, (MLX's name, are
    they stored input first?)).
    """
    piles: int = 0
    """Number of experts in each of these."""
    alternate: bool = False
    """Are rows, and biases, of two fused expert matrices interleaved?"""
    dealt: tuple[str, ...] = ()
    """Parts of the names of fused expert matrices whose rows are interleaved, if not all are."""
    joined: tuple[tuple[str, ...], ...] = ()
    """Parts of names: matrices whose names differ only in these are stacked when they are loaded, so all of
    them are stored in one format."""
    halved: tuple[tuple[str, tuple[str, str]], ...] = ()
    """Matrices that hold two, one below the other: (name, MLX's names of the first and of the last rows)."""
    paired: tuple[tuple[str, tuple[str, str]], ...] = ()
    """Matrices that hold two with interleaved rows, which MLX and transformers have apart: names as above."""
    renamed: tuple[tuple[str, str], ...] = ()
    """(the checkpoint's, MLX's) for any other part of a name."""
    input_first: tuple[str, ...] = ()
    """Endings of names of matrices that are stored transposed in a checkpoint whose `c_attn` is
    [in, 3 * in]."""
    prefix: str = ""
    """MLX's prefix of every name but the head's."""
    spare: tuple[str, ...] = ()
    """Endings of names of tensors that no family reads: stored masks, what is for other media. `adapt` is not
    given them, and they are left out of what is written anew."""
    copies: tuple[str, tuple[str, ...]] = ("", ())
    """A tensor, and endings of names of those that repeat it or that nothing reads if it is there."""
    unread: tuple[str, ...] = ()
    """Parts of names, each up to its dot, of what embeddings do not need: heads of other tasks, buffers."""
    tied_fields: tuple[tuple[str, Any], ...] = ()
    """Config fields that follow from tying head and embedding; they are written where that is undone."""
    settled: bool = False
    """Does mlx-lm take a checkpoint with stacked experts for one of its own, in which filters are
    [channels, taps, 1] and norms are stored whole, not less one?"""

    modules: tuple[tuple[str, str], ...] = ()
    """(the checkpoint's, transformers') names of modules that its class calls otherwise than files do:
    beginnings, or parts that begin with a dot."""
    singles: bool = False
    """Has transformers' class a module for each expert? Others hold them in stacks, whatever files do."""
    every: int = 0
    """Number of experts for which a stack of gates and ups has rows, some of which may have no matrices in
    files; 0: only those that have."""
    repeated: str = ""
    """A module that transformers' class has in every layer that runs it, though its weights are those of the
    first (`borrows`)."""
    norms_rows: bool = False
    """Does transformers' class norm the embedding's rows within the table's module?"""
    inside: tuple[str, str] = ("model.language_model.", "")
    """In a wrapper: transformers 5's prefixes of the text model's names, and of the head's."""
    towers: Towers = Towers()  # frozen
    """Parts for images and sound, which no model here runs."""
    heads: tuple[str, ...] = ()
    """Beginnings of names of draft heads, without a wrapper's prefix."""
    heads_behind: bool = False
    """Are draft heads stored as layers after the last that the config counts?"""

    def never_read(self, name: str) -> bool:
        """Is it stored beside an encoder, with nothing here that reads it (`unread`)?"""
        return any(f".{part}." in f".{name}." for part in self.unread)

    def is_spare(self, name: str) -> bool:
        """Is it one of `spare`, or part of one that is packed, or a stored rotary table?"""
        stem = name.removesuffix(".scales").removesuffix(".biases")
        stored = name if stem == name else f"{stem}.weight"
        return stored.endswith((*self.spare, "rotary_emb.inv_freq"))

    def in_head(self, name: str, layers: int) -> bool:
        """Is this tensor part of a draft head of a model with that many layers (0: unknown)?"""
        bare = unwrapped(name)
        if bare.startswith(self.heads):
            return True
        found = _LAYER.match(bare) if self.heads_behind else None
        return found is not None and 0 < layers <= int(found[1])


PLAIN = Checkpoint()


def always(checkpoint: Checkpoint) -> Callable[[Mapping[str, Any]], Checkpoint]:
    """For a family whose files are all alike."""
    return lambda _config: checkpoint
