"""The Gemma 4 assistant: a draft that remembers nothing and reads its target's layer memory.

It starts from the target's hidden state at the last position in memory and from the token behind it, and
stays there: all drafts of a round are made at one position, each from the state that the one before left.
"""

from collections.abc import Callable, Iterator, Sequence

import mlx.core as mx

from runtime.cache.layout import Full, Rotating
from runtime.cache.memory import LayerMemory
from runtime.loaded import LoadedModel
from runtime.models.registry.described import Described
from runtime.speculate.chain import DraftChain, within
from runtime.speculate.drafter import Proposal, Rows, pass_cost
from runtime.step import Inputs, Step


def is_assistant(draft: Described) -> bool:
    return draft.family.drafts_as == "assistant"


def assistant_problem(draft: Described, target: Described) -> str | None:
    """What keeps this assistant from drafting for this target: a sentence, None when nothing does."""
    if draft.config.backbone_size != target.hidden_size:
        return (
            f"the assistant was made for a target of hidden size {draft.config.backbone_size}, "
            f"and this one's is {target.hidden_size}"
        )
    for slides, layer in zip(draft.config.slides, draft.config.tower.layers, strict=True):
        at = _donor(target, slides)
        kind = "sliding" if slides else "full"
        if at is None:
            return f"the assistant reads a {kind} attention layer, and its target has none"
        if getattr(target.layout[at], "head_dim", None) != layer.head_dim:
            return f"the assistant's {kind} attention heads have another size than its target's"
    return None


class AssistantDrafter:
    """memory: gives the target's layer memory as it is when a proposal is made."""

    def __init__(
        self, draft: LoadedModel, target: LoadedModel, memory: Callable[[], LayerMemory], *, limit: int = 8
    ) -> None:
        self.limit = limit
        self.token_cost = pass_cost(draft.weight_bytes, len(draft.described.layout), target)
        self._draft, self._target, self._memory = draft.network, target.network, memory
        self._vocab_size = target.vocab_size
        self._donors = [*_donors(draft.described, target.described)]
        self._last: list[tuple[mx.array, int, int] | None] = [None]

    def begin(self, row: int, ids: Sequence[int], space: str = "") -> None:
        """Nothing to do: what it starts from is observed."""

    def end(self, row: int, ids: Sequence[int]) -> None:
        """Nothing to do: `clear` follows."""

    def observe(self, step: Step, hidden: mx.array, kept: Sequence[int]) -> None:
        for place, (row, count) in enumerate(zip(step.rows, kept, strict=True)):
            if count:
                self._last[row] = (hidden, place, count - 1)

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        memory = self._memory()
        caches = [memory[donor] for donor in self._donors]
        step = Step(starts=tuple(len(ids) - 2 for ids in rows.ids), counts=(1,) * len(rows))
        hidden = self._hidden(len(rows))
        token = mx.array([[ids[-1]] for ids in rows.ids], dtype=mx.int32)
        chain = DraftChain(rows)
        for _ in range(depth):
            step = step.again(Inputs(token, self._target.embed(token)))
            out = self._draft(step, caches, hidden)
            token = chain.draw(within(self._draft.logits(out), self._vocab_size))
            hidden = self._draft.feedback(out)
        return Proposal(chain.tokens, (depth,) * len(rows), odds=chain.odds)

    def settle(self, lengths: Sequence[int]) -> None:
        """Nothing to do: there is no memory of its own."""

    def move(self, src: int, dst: int) -> None:
        self._last[dst], self._last[src] = self._last[src], None

    def clear(self, row: int) -> None:
        self._last[row] = None

    def resize(self, rows: int) -> None:
        self._last = (self._last + [None] * rows)[:rows]

    def _hidden(self, count: int) -> mx.array:
        """[n, 1, D]: the target's hidden states at the last position that its memory holds."""
        seen = [last for last in self._last[:count] if last is not None]
        assert len(seen) == count, "what the target reads must be observed"
        return mx.concatenate([hidden[place : place + 1, at : at + 1] for hidden, place, at in seen])


def layers_read(draft: Described, target: Described) -> frozenset[int]:
    """The target's layers whose memory this assistant reads: those that rank 0 of several has to follow."""
    return frozenset(_donors(draft, target))


def _donors(draft: Described, target: Described) -> Iterator[int]:
    """For each of the assistant's layers."""
    for slides in draft.config.slides:
        at = _donor(target, slides)
        assert at is not None, "assistant_problem says so first"
        yield at


def _donor(target: Described, slides: bool) -> int | None:
    """The target's last layer of that kind with a memory of its own."""
    kind = Rotating if slides else Full
    return max((i for i, spec in enumerate(target.layout) if isinstance(spec, kind)), default=None)
