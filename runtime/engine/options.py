"""An engine's settings, which are fixed when it starts, as plain values."""

from runtime.cache.page_folder import PrefixFolder
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """Raises ValueError for a prefix_folder without prefix_bytes."""

    context_length: int
    """The most tokens of a sequence, prompt included."""

    budget_tokens: int = 512
    """The most tokens that one step computes, and so the size of a prefill chunk."""

    max_rows: int = 8
    """Sequences at once."""

    max_waiting: int = 512
    """Requests that may wait for a place; one more is refused (QueueFull)."""

    cache_bytes: int | None = None
    """Limit of all layer memory, that of drafters included; None for none."""

    spare_bytes: int | None = None
    """What rows leave of the machine's memory when they grow, whatever their limit, and of each machine's
    where there are several; None: nobody looks how much there is.
    """

    prefix_bytes: int | None = None
    """Limit of what target and drafters together keep of earlier sequences, in addition to layer memory; None
    keeps nothing.
    """

    prefix_folder: PrefixFolder | None = None
    """Where earlier sequences are kept on disk as well; None for memory only."""

    mark_spacing: int = 128
    """The least distance, in tokens, between two of a prompt's lesser marks that are both paged."""

    kv_format: str | None = None
    """The format in which keys and values are kept, a name of runtime.quant; None: that of activations.
    Layers that do not keep tokens are not affected.
    """

    threads: int | None = None
    """Threads of matrix products on the processor; None: as many as pay, see runtime.cpu.threads."""

    ranks_here: int | None = None
    """How many ranks on this machine, this one included, divide its cores; None: the model has one rank."""

    def __post_init__(self) -> None:
        if self.prefix_bytes is None and self.prefix_folder is not None:
            raise ValueError("prefixes on disk need prefix_bytes: they are used from memory")
