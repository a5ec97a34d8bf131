"""What can go wrong below the text floor. Each message says what was wanted and what is.

RuntimeFault
├── CacheFull          layer memory would pass its budget
├── NotSupported       this layer kind cannot do that (for example cut a middle range out)
├── UnsupportedModel   nothing here runs this config, or a field of it has a value we know to be wrong
├── WeightMismatch     tensors missing, surplus or misshapen
├── TooLarge           weights would take more memory than there is
└── BadTokenIds        an id outside the vocabulary
"""


class RuntimeFault(Exception):
    """Base of all errors of this floor."""


class CacheFull(RuntimeFault):
    """Layer memory would need more bytes than its budget allows.

    Attributes: `wanted_bytes` and `budget_bytes`, both for the whole cache that was asked.
    """

    def __init__(self, wanted_bytes: int, budget_bytes: int) -> None:
        super().__init__(f"the cache wants {wanted_bytes:,} bytes and its budget is {budget_bytes:,}")
        self.wanted_bytes = wanted_bytes
        self.budget_bytes = budget_bytes


class NotSupported(RuntimeFault):
    """The operation has no meaning for this kind of layer memory."""


class UnsupportedModel(RuntimeFault):
    """No architecture here computes what this config asks for; running it anyway would be silently wrong."""


class WeightMismatch(RuntimeFault):
    """The tensors do not fit the modules.

    `problems` lists one sentence per tensor, in name order.
    """

    def __init__(self, problems: list[str]) -> None:
        shown = "; ".join(problems[:5])
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        super().__init__(shown + more)
        self.problems = problems


class TooLarge(RuntimeFault):
    """Weights that would not fit: `wanted_bytes` of `available_bytes`. Nothing was allocated."""

    def __init__(self, wanted_bytes: int, available_bytes: int) -> None:
        super().__init__(f"the weights take {wanted_bytes:,} bytes and {available_bytes:,} are free")
        self.wanted_bytes = wanted_bytes
        self.available_bytes = available_bytes


class BadTokenIds(RuntimeFault):
    """An id is not in [0, vocabulary size): MLX would read outside the embedding table."""
