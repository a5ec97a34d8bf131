"""Who may guess for a target: the drafters that stand by, the one to ask first in front."""

from collections.abc import Callable

from runtime.cache.build import LayerMemory
from runtime.loaded import LoadedModel
from runtime.speculate.assistant import AssistantDrafter, is_assistant
from runtime.speculate.draft_model import ModelDrafter
from runtime.speculate.drafter import Drafter
from runtime.speculate.head import HeadDrafter
from runtime.speculate.ngram import NgramDrafter


def standing_drafters(
    target: LoadedModel, draft: LoadedModel | None, memory: Callable[[], LayerMemory]
) -> dict[str, Drafter]:
    """The draft that was asked for, or else the target's own head, and prompt lookup.

    memory: gives the target's layer memory, once there is any.
    """
    own: dict[str, Drafter] = {}
    if draft is not None:
        own["draft"] = _of(draft, target, memory)
    elif target.head is not None:
        own["head"] = HeadDrafter(target)
    return {**own, "lookup": NgramDrafter()}


def _of(draft: LoadedModel, target: LoadedModel, memory: Callable[[], LayerMemory]) -> Drafter:
    if is_assistant(draft.described):
        return AssistantDrafter(draft, target, memory)
    return ModelDrafter(draft, vocab_size=target.vocab_size)
