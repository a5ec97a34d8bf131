"""Who may guess for a target: the drafters that stand by, the one to ask first in front."""

from runtime.cache.build import LayerMemory
from runtime.loaded import LoadedModel
from runtime.speculate.assistant import AssistantDrafter, is_assistant
from runtime.speculate.block import BlockDrafter, is_block_draft
from runtime.speculate.draft_model import ModelDrafter
from runtime.speculate.drafter import Drafter, pass_cost
from runtime.speculate.head import HeadDrafter
from runtime.speculate.ngram import NgramDrafter


def standing_drafters(
    target: LoadedModel, draft: LoadedModel | None, memory: LayerMemory
) -> dict[str, Drafter]:
    """The draft that was asked for, or else the target's own head, and prompt lookup.

    memory: the target's; what drafters remember themselves counts in its budget.
    """
    own: dict[str, Drafter] = {}
    if draft is not None:
        own["draft"] = _of(draft, target, memory)
    elif target.head is not None:
        own["head"] = HeadDrafter(target, budget=memory.budget)
    return {**own, "lookup": NgramDrafter()}


def _of(draft: LoadedModel, target: LoadedModel, memory: LayerMemory) -> Drafter:
    if is_assistant(draft.described):
        return AssistantDrafter(draft, target, lambda: memory)
    if is_block_draft(draft.described):
        return BlockDrafter(draft, target, budget=memory.budget)
    cost = pass_cost(draft.weight_bytes, len(draft.described.layout), target)
    return ModelDrafter(draft, vocab_size=target.vocab_size, token_cost=cost, budget=memory.budget)
