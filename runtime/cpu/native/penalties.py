"""Penalties by the kernels: as a node of their own, or as part of the node from ids to tokens (`guesses`)."""

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from runtime.parts.draws import PenaltyParams


def penalise(kernels: Any) -> Callable[..., mx.array | None]:
    """As `runtime.nn.operations.signatures.Operations` has it."""
    node = kernels.penalise

    def penalise(
        logits: mx.array, by: PenaltyParams, pasts: Sequence[Sequence[int]], inputs: mx.array
    ) -> mx.array | None:
        if logits.dtype != mx.float32:
            return None
        return node(logits, inputs.astype(mx.int32), penalties_of(kernels, by, pasts))

    return penalise


def penalties_of(kernels: Any, by: PenaltyParams, pasts: Sequence[Sequence[int]]) -> Any:
    """The kernels' view of what stands before a step."""
    recent = [by.recent(row, past, len(past)) for row, past in enumerate(pasts)]
    return kernels.Penalties(recent, by.windows, by.repeat, by.presence, by.frequency)
