"""What is decided about an engine when it starts, as plain values."""

from runtime.cache.page_folder import PrefixFolder
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """Raises ValueError for a prefix_folder without prefix_bytes."""

    context_length: int
    """Tokens a sequence may have, prompt included."""

    budget_tokens: int = 512
    """What one step computes at most, and so the size of a prefill chunk."""

    max_rows: int = 8
    """Sequences at once."""

    max_waiting: int = 512
    """Requests that may wait for a place; one more is refused (QueueFull)."""

    cache_bytes: int | None = None
    """Limit of all layer memory, that of drafters included; None for none."""

    prefix_bytes: int | None = None
    """Limit of what is kept of earlier sequences, by target and drafters together, beside layer memory; None
    keeps nothing.
    """

    prefix_folder: PrefixFolder | None = None
    """Where it is kept on disk as well; None for memory only."""

    mark_spacing: int = 128
    """How close, in tokens, the lesser of a prompt's marks may be to be paged."""

    kv_format: str | None = None
    """How keys and values are kept, a name of runtime.quant; None: as activations are. Layers that do not
    keep tokens are not concerned.
    """

    threads: int | None = None
    """For products on the processor; None: as many as pay, see runtime.cpu.threads."""

    ranks_here: int | None = None
    """Ranks on this machine, which divide its cores, itself included; None: not one of several anywhere."""

    def __post_init__(self) -> None:
        if self.prefix_bytes is None and self.prefix_folder is not None:
            raise ValueError("prefixes on disk need prefix_bytes: they are used from memory")
