"""How machines would run a model together, decided from its headers: what `modelkit plan` prints."""

from collections.abc import Sequence
from typing import Any

from modelkit.errors import LoadError
from modelkit.opening.opened import Opened
from modelkit.pack.model_setup import kept_format
from modelkit.requests.attached import shapes
from runtime.device import Device
from runtime.errors import CannotCut, UnsupportedModel, WeightMismatch
from runtime.models import describe
from runtime.ranks.parts import Remembered, parts_of
from runtime.ranks.plan import Host, Plan, Share, decide
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and what it was made for."""

    plan: Plan
    tokens: int
    """Of each sequence."""
    sequences: int
    whole: tuple[str, ...]
    """What is on every rank of a stage: one sentence for each kind."""

    @property
    def short(self) -> tuple[tuple[int, Share], ...]:
        """The ranks that have too little room, and their shares."""
        return tuple(
            (rank, share)
            for rank, share in enumerate(self.plan.shares)
            if 0 < share.free_bytes < share.wanted_bytes
        )

    def to_json(self) -> dict[str, Any]:
        return {
            **self.plan.to_json(),
            "stages": self.plan.stages,
            "digest": self.plan.digest,
            "tokens": self.tokens,
            "sequences": self.sequences,
            "whole": list(self.whole),
            "fits": not self.short,
        }


def plan_for(
    opened: Opened,
    hosts: Sequence[Host],
    *,
    shards: int = 1,
    tokens: int | None = None,
    sequences: int = 1,
    on: Device | None = None,
) -> Planned:
    """tokens: of each sequence; None: as many as the package allows. on: see `parts_of`. Raises LoadError
    with the reason why it cannot be cut so.
    """
    wanted = opened.metadata.parameters.resolved()
    layout = describe(opened.inventory.config).layout
    kept, _ = kept_format(opened.label, layout, wanted.kv_format)
    most = opened.context_length
    tokens = min(tokens or wanted.num_ctx or most, most)
    tensors = {name: (tensor.dtype, tensor.shape) for name, tensor in opened.inventory.tensors.items()}
    memory = Remembered(tokens, sequences, kept)
    try:
        parts = parts_of(
            opened.inventory.config,
            tensors,
            shards=shards,
            memory=memory,
            on=on,
            adapters=shapes(opened.adapters),
        )
        return Planned(decide(parts, hosts), tokens, sequences, parts.whole)
    except (CannotCut, UnsupportedModel, WeightMismatch) as fault:
        raise LoadError(f"{opened.label} cannot run on {len(hosts)} ranks: {fault}") from fault
