"""Who drafts for a target: what keeps a draft from it, which drafts only run inside one, and the drafters.

Configs are enough to tell whether a draft fits: for that nothing is loaded.
"""

from typing import TYPE_CHECKING

from runtime.cache.memory import LayerMemory
from runtime.errors import NotSupported
from runtime.loaded import LoadedModel
from runtime.models.registry.described import Described
from runtime.speculate.assistant import AssistantDrafter, assistant_problem, is_assistant, layers_read
from runtime.speculate.block import BlockDrafter, is_block_draft
from runtime.speculate.draft_model import ModelDrafter
from runtime.speculate.drafter import Drafter, pass_cost
from runtime.speculate.forced_tokens import ForcedDrafter
from runtime.speculate.head import HeadDrafter
from runtime.speculate.ngram import NgramDrafter
from runtime.trunks.taps import taps_of

if TYPE_CHECKING:
    from runtime.models.dflash_config import Config


def runs_inside(draft: Described) -> bool:
    """Does it read its target's states or memory, and so cannot run by itself?"""
    return is_assistant(draft) or is_block_draft(draft)


def pair_problem(draft: Described, target: Described) -> str | None:
    """A sentence; None when nothing does. Any language model can draft for any other that
    reads its prompt as it writes its answer.
    """
    for one in (draft, target):
        if not one.writes:
            return f"{one.name} makes embeddings, and writes no text"
    if draft.start_id is not None:
        return f"{draft.name} reads prompts with an encoder, and drafts go on from what stands there"
    if target.start_id is not None:
        return f"a draft sees the answer alone, and not the prompt that {target.name}'s encoder has read"
    if is_assistant(draft):
        return assistant_problem(draft, target)
    return _block_problem(draft, target) if is_block_draft(draft) else None


def drafters_for(target: LoadedModel, draft: LoadedModel | None, memory: LayerMemory) -> dict[str, Drafter]:
    """The draft that was asked for, or else the target's own head, prompt lookup, and what grammars leave no
    choice about; of those that promise as much, the first is asked.

    memory: the target's; what drafters remember themselves counts in its budget.
    """
    own: dict[str, Drafter] = {}
    if draft is not None:
        own["draft"] = _of(draft, target, memory)
    elif target.head is not None:
        own["head"] = HeadDrafter(target, budget=memory.budget)
    return {**own, "lookup": NgramDrafter(), "grammar": ForcedDrafter()}


def _of(draft: LoadedModel, target: LoadedModel, memory: LayerMemory) -> Drafter:
    if is_assistant(draft.described):
        if target.shared:
            _follow(layers_read(draft.described, target.described), draft, target, memory)
        return AssistantDrafter(draft, target, lambda: memory)
    if is_block_draft(draft.described):
        return BlockDrafter(draft, target, budget=memory.budget)
    cost = pass_cost(draft.weight_bytes, len(draft.described.layout), target)
    return ModelDrafter(draft, vocab_size=target.vocab_size, token_cost=cost, budget=memory.budget)


def _follow(layers: frozenset[int], draft: LoadedModel, target: LoadedModel, memory: LayerMemory) -> None:
    """Have rank 0 given what enters these layers, of which it has copies (`runtime.ranks.stage`)."""
    trunk = taps_of(target.network)
    if trunk is None or layers & memory.elsewhere:
        raise NotSupported(
            f"{draft.described.name} reads its target's layer memory, of which machines have parts: give a "
            "draft that is a model of its own, or cut the target into stages"
        )
    trunk.tap(sorted(layer - 1 for layer in layers if layer))


def _block_problem(draft: Described, target: Described) -> str | None:
    config: Config = draft.config
    trunk = taps_of(target.network())
    if trunk is None:
        return f"a block draft reads hidden states between layers, which {target.name} does not give"
    if config.hidden_size != target.hidden_size:
        return (
            f"the block draft was made for a target of hidden size {config.hidden_size}, "
            f"and this one's is {target.hidden_size}"
        )
    layers, deepest = trunk.depth, max(config.target_layers)
    if config.of_layers not in (None, layers):
        return (
            f"the block draft was made for a target of {config.of_layers} layers, and this one has {layers}"
        )
    if deepest >= layers:
        return f"the block draft reads layer {deepest}, and the last of its target's layers is {layers - 1}"
    if config.of_vocab not in (None, target.vocab_size):
        return (
            f"the block draft was made for a vocabulary of {config.of_vocab}, "
            f"and its target's has {target.vocab_size}"
        )
    if config.mask_token >= target.vocab_size:
        return (
            f"the block draft's mask token is {config.mask_token}, "
            f"and its target's vocabulary has {target.vocab_size}"
        )
    return None
