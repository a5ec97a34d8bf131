"""The family of a wrapper: that of its text model, under the wrapper's names of tensors."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx

from runtime.models.family import Family
from runtime.models.multimodal.alone import alone
from runtime.models.multimodal.text_models import TEXTS
from runtime.models.multimodal.towers import ALL_TOWERS
from runtime.models.multimodal.wrappers import find_wrapper
from runtime.models.registry.described import find_family
from runtime.tensors.checkpoint import Checkpoint
from runtime.tensors.names import text_tower

Raw = Mapping[str, Any]
Adapt = Callable[[Any, dict[str, mx.array]], dict[str, mx.array]]


def _variant(raw: Raw) -> Family:
    """The text model's family, which finds its config in the block and its tensors behind the wrapper's
    names.
    """
    text, row = alone(raw), find_wrapper(raw)
    family, layers = find_family(text), TEXTS[text["model_type"]].get("num_hidden_layers", 0)

    def checkpoint(config: Raw) -> Checkpoint:
        own = family.checkpoint(config)
        return replace(
            own,
            towers=ALL_TOWERS,
            heads=(*own.heads, "mtp."),
            inside=(row.inside, row.head),
            prefix="",
            default_layers=own.default_layers or layers,
        )

    head = family.head
    return replace(
        family,
        parse=lambda raw: family.parse(alone(raw)),
        adapt=_unwrapping(family.adapt),
        head=None if head is None else replace(head, adapt=_unwrapping(head.adapt)),
        checkpoint=checkpoint,
    )


def _unwrapping(adapt: Adapt) -> Adapt:
    return lambda config, weights: adapt(config, text_tower(weights))


def _never(_: Any, *more: Any) -> Any:
    raise AssertionError("a variant runs it")


FAMILY = Family(
    parse=_never,
    layout=_never,
    build=_never,
    adapt=_never,
    variant=_variant,
)
