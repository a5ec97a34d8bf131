"""What is decided about an engine when it starts, as plain values."""

from dataclasses import dataclass

from runtime.cache.page_folder import PrefixFolder


@dataclass(frozen=True, slots=True)
class Options:
    """context_length: tokens a sequence may have, prompt included.

    budget_tokens: what one step computes at most, and so the size of a prefill chunk. max_rows: sequences at
    once. cache_bytes: limit of all layer memory, that of drafters included; None for none.
    prefix_bytes: limit of what is kept of earlier sequences, by target and drafters together, beside layer
    memory; None keeps nothing.
    prefix_folder: where it is kept on disk as well; None for memory only. kv_format: how keys and values are
    kept, a name of runtime.quant; None: as activations are. Layers that do not keep tokens are not concerned.
    threads: for products on the processor; None: as many as pay, see runtime.cpu.threads.
    mark_spacing: how close, in tokens, the lesser of a prompt's marks may be to be paged.

    Raises ValueError for a prefix_folder without prefix_bytes.
    """

    context_length: int
    budget_tokens: int = 512
    max_rows: int = 8
    cache_bytes: int | None = None
    prefix_bytes: int | None = None
    prefix_folder: PrefixFolder | None = None
    mark_spacing: int = 128
    kv_format: str | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.prefix_bytes is None and self.prefix_folder is not None:
            raise ValueError("prefixes on disk need prefix_bytes: they are used from memory")
