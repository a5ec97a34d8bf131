"""What running a model will take, foreseen from headers, and what to do where it is more than there is.

Nothing is read but headers: the counting is that of `runtime.loading.forecast`, over placeholders. A context
that does not fit is no error, since few conversations fill it; the user is told before anything is loaded.
"""

from collections.abc import Callable
from dataclasses import replace

from modelkit.source.inventory import Inventory
from runtime import device
from runtime.cache.layout import (
    LayerSpec,
    growing_bytes,
    keeps_tokens,
    misfits,
    sequence_bytes,
    wide_step_bytes,
)
from runtime.loading.forecast import Demand, foresee
from runtime.loading.step_demand import StepDemand
from runtime.records import dataclass

# Formats that take less than any float type, the one that costs less quality first.
_SMALLER_FORMATS = ("q8", "q4")
_ROUND_TOKENS = 256
# What most conversations stay below.
LIKELY_TOKENS = 1024
BESIDE_BYTES = 26 << 20
"""What libraries take on a processor: 21 MB once a model is loaded, whatever its size, and some while it
answers.
"""
_SPARE = 32
"""One of so many parts of what is free is left to others, and to what nobody foresees."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a model takes, in bytes. What is likely and what is possible are far apart, so both are said.

    Of a model that several ranks run together all of it is meant, as it is in what is free and in what the
    engine says it has taken: `modelkit plan` says what each of them has. Before it is loaded, and always of
    what layers remember, that is what one machine would take: what ranks repeat is counted once.
    """

    weight_bytes: int
    """The model's weights, as they are held; once it is loaded, all that ranks hold of them."""
    draft_bytes: int
    """The draft's weights; 0 without one."""
    cache_bytes: int
    """What the model's layers remember of one sequence of the whole context."""
    available_bytes: int
    """What was free before anything was loaded, of all ranks' machines together; 0: unknown."""
    draft_cache_bytes: int = 0
    """What the draft's layers remember of such a sequence."""
    prefix_bytes: int = 0
    """The limit of what is kept of earlier prompts."""
    context_tokens: int = 0
    """The whole context."""
    likely_tokens: int = 0
    """What most conversations stay below."""
    likely_bytes: int = 0
    """What the layers of model and draft remember of `likely_tokens` tokens."""
    step_bytes: int = 0
    """What layers hold beside while a conversation gets as long as the whole context: one that grows is there
    twice, those with a window hold what a step reads of the prompt, and the step works with its buffers.
    """
    likely_step_bytes: int = 0
    """What they hold beside while one of `likely_tokens` tokens is read."""
    step_tokens: int = 0
    """The most tokens of a prompt that one step reads."""
    work_bytes: int = 0
    """What of `step_bytes` such a step works with, whatever its layers remember."""
    adapter_bytes: int = 0
    """All adapters, each of which is read when a request first asks for it."""
    rows: int = 1
    """Conversations that can be answered at once."""
    beside_bytes: int = 0
    """What the program takes beside, whatever the model."""

    @property
    def spare_bytes(self) -> int:
        """What conversations leave of the memory that is free while they grow, beside what that takes."""
        return self.spare_of(1)

    def spare_of(self, ranks: int) -> int:
        """That of each of so many ranks, whose machines have what is available together."""
        return self.beside_bytes + self.work_bytes + self.others_bytes // ranks

    @property
    def others_bytes(self) -> int:
        """What of it is left to other programs."""
        return self.available_bytes // _SPARE

    @property
    def fixed_bytes(self) -> int:
        """What is taken whatever the model is asked."""
        return self.weight_bytes + self.draft_bytes + self.adapter_bytes + self.beside_bytes

    @property
    def needed_bytes(self) -> int:
        """What a usual conversation will take."""
        return self.fixed_bytes + self.likely_bytes + self.likely_step_bytes

    @property
    def wanted_bytes(self) -> int:
        """The most that can be taken: the whole context, and all that may be kept of earlier prompts."""
        remembered = self.cache_bytes + self.draft_cache_bytes
        return self.fixed_bytes + remembered + self.step_bytes + self.prefix_bytes

    def sentence(self, size: Callable[[int], str]) -> str:
        """What is likely, then what is possible. size: how a number of bytes is written."""
        said = f"needs {size(self.needed_bytes)} with {self.likely_tokens:,} tokens of context"
        if self.context_tokens > self.likely_tokens:
            whole = self.wanted_bytes - self.prefix_bytes
            said += f", {size(whole)} with all {self.context_tokens:,}"
        if self.prefix_bytes:
            said += f"; may cache up to {size(self.prefix_bytes)} of prompts"
        free = f"{size(self.available_bytes)} free" if self.available_bytes else "free memory unknown"
        return f"{said} ({free})"


@dataclass(frozen=True, slots=True)
class Forecast:
    """A model and its draft before they are loaded."""

    layout: tuple[LayerSpec, ...]
    element_bytes: int
    """Of one number of the activations, and so of the layers' memory."""
    weight_bytes: int
    kv_format: str | None = None
    """How the model's own keys and values are kept; those of a draft are as its activations are."""
    draft_layout: tuple[LayerSpec, ...] = ()
    """() for one that remembers nothing of its own."""
    draft_element_bytes: int = 0
    draft_bytes: int = 0
    draft_context: int = 0
    """Tokens that the draft can follow."""
    work: StepDemand = StepDemand()
    """What a step of the model works with."""
    draft_work: StepDemand = StepDemand()
    """What one of the draft does, which comes after it."""
    adapter_bytes: int = 0
    beside_bytes: int = 0
    """As in Memory."""

    def cache_bytes(self, tokens: int) -> int:
        return sequence_bytes(self.layout, tokens, self.element_bytes, kept_format=self.kv_format)

    def draft_cache_bytes(self, tokens: int) -> int:
        read = min(tokens, self.draft_context)
        return sequence_bytes(self.draft_layout, read, self.draft_element_bytes)

    def work_bytes(self, width: int) -> int:
        """What a step works with that reads so much of a prompt."""
        return max(self.work.of(width), self.draft_work.of(width))

    def wide_bytes(self, tokens: int, width: int) -> int:
        """What is held beside layer memory while a prompt is read. The draft reads it after the model."""
        read, of_draft = min(tokens, self.draft_context), self.draft_element_bytes
        own = wide_step_bytes(self.layout, tokens, width, self.element_bytes, self.kv_format)
        held = max(own, wide_step_bytes(self.draft_layout, read, width, of_draft))
        return held + self.work_bytes(min(tokens, width))

    def step_bytes(self, tokens: int, width: int) -> int:
        """The same, or what is held beside while a sequence grows until it is so long."""
        read, of_draft = min(tokens, self.draft_context), self.draft_element_bytes
        own = growing_bytes(self.layout, tokens, self.element_bytes, self.kv_format)
        return max(self.wide_bytes(tokens, width), own, growing_bytes(self.draft_layout, read, of_draft))

    def memory(
        self, tokens: int, prefix_bytes: int, available_bytes: int, rows: int = 1, width: int = 512
    ) -> Memory:
        """For sequences of `tokens` tokens, `rows` at once, of whose prompts a step reads `width` tokens."""
        likely = min(tokens, LIKELY_TOKENS)
        return Memory(
            weight_bytes=self.weight_bytes,
            draft_bytes=self.draft_bytes,
            cache_bytes=self.cache_bytes(tokens),
            available_bytes=available_bytes,
            draft_cache_bytes=self.draft_cache_bytes(tokens),
            prefix_bytes=prefix_bytes,
            context_tokens=tokens,
            likely_tokens=likely,
            likely_bytes=self.cache_bytes(likely) + self.draft_cache_bytes(likely),
            step_bytes=self.step_bytes(tokens, width),
            likely_step_bytes=self.wide_bytes(likely, width),
            step_tokens=width,
            work_bytes=self.work_bytes(min(tokens, width)),
            adapter_bytes=self.adapter_bytes,
            rows=rows,
            beside_bytes=self.beside_bytes,
        )


def forecast(own: Demand, draft: Demand | None, *, drafts: bool, kv_format: str | None) -> Forecast:
    """own: of the model. drafts: whether anything will be drafted, by `draft` or the model's own head."""
    target = Forecast(
        own.described.layout,
        own.element_bytes,
        own.weight_bytes,
        kv_format,
        work=own.step,
        beside_bytes=BESIDE_BYTES,
    )
    if not drafts:
        return target
    other = draft or own
    return replace(
        target,
        draft_layout=own.head_layout if draft is None else other.described.layout,
        draft_element_bytes=other.element_bytes,
        draft_bytes=own.head_bytes if draft is None else other.weight_bytes,
        draft_context=other.described.context_length,
        draft_work=other.step,
    )


def shortage(label: str, foreseen: Forecast, tokens: int, memory: Memory) -> str | None:
    """A sentence about what is too much, with what would fit; None where all of it fits, or nothing is known
    of what is free.
    """
    free, wanted = memory.available_bytes, memory.wanted_bytes + memory.others_bytes
    if not 0 < free < wanted:
        return None
    parts = [
        ("weights", memory.weight_bytes + memory.draft_bytes),
        ("adapters", memory.adapter_bytes),
        (f"{tokens:,} tokens of context", memory.cache_bytes + memory.draft_cache_bytes + memory.step_bytes),
        ("cached prompts", memory.prefix_bytes),
        ("beside", memory.beside_bytes + memory.others_bytes),
    ]
    shares = ", ".join(f"{name} {nbytes:,}" for name, nbytes in parts if nbytes)
    said = f"{label} may take {wanted:,} bytes and {free:,} are free ({shares})"
    ways = list(_ways(foreseen, tokens, memory))
    return f"{said}; {' or '.join(ways)} would fit" if ways else said


def _ways(foreseen: Forecast, tokens: int, memory: Memory) -> list[str]:
    """Changes each of which is enough on its own."""
    room = memory.available_bytes - memory.others_bytes - memory.fixed_bytes - memory.prefix_bytes

    def fits(count: int, kv_format: str | None) -> bool:
        kept = replace(foreseen, kv_format=kv_format)
        taken = kept.cache_bytes(count) + kept.draft_cache_bytes(count)
        return taken + kept.step_bytes(count, memory.step_tokens) <= room

    ways: list[str] = []
    most = _most(tokens, lambda count: fits(count, foreseen.kv_format))
    if most:
        ways.append(f"num_ctx {most}")
    now = foreseen.cache_bytes(tokens)
    for name in _SMALLER_FORMATS if any(map(keeps_tokens, foreseen.layout)) else ():
        smaller = replace(foreseen, kv_format=name).cache_bytes(tokens) < now
        if smaller and not misfits(foreseen.layout, name) and fits(tokens, name):
            ways.append(f"kv_format {name}")
            break
    left = memory.available_bytes - memory.others_bytes - (memory.wanted_bytes - memory.prefix_bytes)
    if 0 < left < memory.prefix_bytes:
        ways.append(f"cache memory of {left:,} bytes")
    return ways


def _most(tokens: int, fits: Callable[[int], bool]) -> int:
    """The largest number below `tokens` that fits, in round numbers; 0 for none."""
    low, high = 0, tokens
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low if low < _ROUND_TOKENS else low // _ROUND_TOKENS * _ROUND_TOKENS


def demand_of(inventory: Inventory, *, with_head: bool = False) -> Demand:
    """From headers alone. with_head: of its own draft head, too. Raises WeightMismatch and UnsupportedModel,
    as loading would.
    """
    tensors = {name: (tensor.dtype, tensor.shape) for name, tensor in inventory.tensors.items()}
    return foresee(inventory.config, tensors, on=device.device(), with_head=with_head)
