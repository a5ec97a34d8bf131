"""What is particular to the files of a family of models: the names of their tensors, and what suits them.

Numbers are the business of `adapt`. This is for whoever lists, converts or leaves out tensors without reading
them; MLX's names are those that mlx-lm and this runtime load.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from runtime.models.quantizing import Row
from runtime.models.towers import Towers, unwrapped
from runtime.records import dataclass

TRUNK = "model."
"""In front of the names of all tensors but the head's."""
_LAYER = re.compile(r"layers\.(\d{1,6})\.", re.ASCII)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    rows: tuple[Row, ...] = ()
    """Formats for its tensors, asked before the rows for all models."""
    default_layers: int = 0
    """How many layers a model has whose config does not say."""

    experts: str = "switch_mlp"
    """MLX's name for a stack that the checkpoint calls `experts`."""
    matrices: tuple[tuple[str, str], ...] = ()
    """(the checkpoint's, MLX's) names of an expert's projections, where they differ."""
    stacks: tuple[tuple[str, str], ...] = ()
    """(the checkpoint's, the usual) parts of names of stacks that hold all experts, such as
    `experts.gate_up_proj`."""
    piled: tuple[tuple[str, tuple[str, bool]], ...] = ()
    """How names end of matrices that hold those of all experts, one below the other, with MLX's name, and
    whether they are input first."""
    piles: int = 0
    """How many are in each."""
    alternate: bool = False
    """Rows of two fused expert matrices come in turn, and their biases."""
    dealt: tuple[str, ...] = ()
    """Parts of the names of fused expert matrices whose rows come in turn, where others' do not."""
    joined: tuple[tuple[str, ...], ...] = ()
    """Parts of names: matrices that differ in them alone are stacked when they are loaded, so all of them are
    stored in one format."""
    halved: tuple[tuple[str, tuple[str, str]], ...] = ()
    """Matrices that hold two: (name, MLX's names of the first rows and of the last)."""
    paired: tuple[tuple[str, tuple[str, str]], ...] = ()
    """Matrices whose rows are of two in turn, which MLX and transformers have apart: names as above."""
    renamed: tuple[tuple[str, str], ...] = ()
    """(the checkpoint's, MLX's) for any other part of a name."""
    input_first: tuple[str, ...] = ()
    """Matrices that a checkpoint with a `c_attn` of [in, 3 * in] has the other way round, by name's end."""
    prefix: str = ""
    """What MLX has before every name but the head's."""
    spare: tuple[str, ...] = ()
    """How names end of what no family reads: stored masks, what is for other media. `adapt` is not given it,
    and it is left out of what is written anew."""
    copies: tuple[str, tuple[str, ...]] = ("", ())
    """A tensor, and how the names end of those that repeat it or that nothing reads beside it."""
    unread: tuple[str, ...] = ()
    """Parts of names, each up to its dot, of what no embedding is made of: heads of other tasks, buffers."""
    tied_fields: tuple[tuple[str, Any], ...] = ()
    """Config fields that follow from the tying of head and embedding: to be written where that is undone."""
    settled: bool = False
    """mlx-lm takes a checkpoint whose experts are stacked for one of its own, in which filters are
    [channels, taps, 1] and norms are stored whole, not less one."""

    modules: tuple[tuple[str, str], ...] = ()
    """(the checkpoint's, transformers') names of modules, where its class calls them otherwise than files do:
    beginnings, or parts that begin with a dot."""
    singles: bool = False
    """Has its class a module for each expert? The others hold them in stacks, whatever files do."""
    every: int = 0
    """How many experts a stack of gates and ups has rows for, some of which may have no matrices in files; 0:
    for those that have."""
    inside: tuple[str, str] = ("model.language_model.", "")
    """In a wrapper: what transformers 5 has before the names of the text model, and before the head's."""
    towers: Towers = Towers()  # frozen
    """What is for images and sound, which no model here runs."""
    heads: tuple[str, ...] = ()
    """How names of draft heads begin, wrappers apart."""
    heads_behind: bool = False
    """Draft heads are stored as layers after the last that the config counts."""

    def never_read(self, name: str) -> bool:
        """Is this tensor one of those that are stored beside an encoder and that nothing here reads?"""
        return any(f".{part}." in f".{name}." for part in self.unread)

    def is_spare(self, name: str) -> bool:
        """Is this tensor one of those, or of one that is packed, or a stored rotary table?"""
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
