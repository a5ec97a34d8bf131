"""What can go wrong below the text floor. Each message says what was wanted and what is.

RuntimeFault
├── CacheFull          layer memory would pass its budget
├── NotSupported       this layer kind cannot do that (for example cut a middle range out)
├── UnsupportedModel   nothing here runs this config, or a field of it has a value we know to be wrong
├── WeightMismatch     tensors missing, surplus or misshapen
├── TooLarge           weights would take more memory than there is
├── ProcessLimit       a limit on the process's addresses or threads leaves no room to compute in
├── CannotCut          this model cannot be cut among so many machines
├── BadTokenIds        an id outside the vocabulary
├── QueueFull          as many requests wait as may
├── RankLost           a machine that computes a part of the model is gone, silent or different
├── Forked             MLX has computed in the process that this one was forked from
└── NotNumbers         logits that are NaN or infinite
"""


class RuntimeFault(Exception):
    """Base of all errors of this floor."""


class CacheFull(RuntimeFault):
    """Layer memory would need more bytes than its budget allows.

    Attributes: `wanted_bytes` and `budget_bytes`, both for the whole cache that was asked; `because`, on
    several machines: which of them has how much; "" on one.
    """

    def __init__(self, wanted_bytes: int, budget_bytes: int, because: str = "") -> None:
        said = f", as {because}" if because else ""
        super().__init__(f"the cache wants {wanted_bytes:,} bytes and its budget is {budget_bytes:,}{said}")
        self.because = because
        self.wanted_bytes = wanted_bytes
        self.budget_bytes = budget_bytes


class NotSupported(RuntimeFault):
    """The operation has no meaning for this kind of layer memory."""


class UnsupportedModel(RuntimeFault):
    """No architecture here computes what this config asks for; running it anyway would be silently wrong."""


class WeightMismatch(RuntimeFault):
    """The tensors do not fit the modules.

    `problems` lists one sentence per tensor, in name order. The message has the first five, each cut in its
    middle if a file's tensor names are longer than names are.
    """

    def __init__(self, problems: list[str]) -> None:
        shown = "; ".join(p if len(p) <= 160 else f"{p[:90]} ... {p[-60:]}" for p in problems[:5])
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        super().__init__(shown + more)
        self.problems = problems


class TooLarge(RuntimeFault):
    """Weights that would not fit: `wanted_bytes` of `available_bytes`. Nothing was allocated."""

    def __init__(
        self, wanted_bytes: int, available_bytes: int, what: str = "the weights", more: str = ""
    ) -> None:
        super().__init__(f"{what} take {wanted_bytes:,} bytes and {available_bytes:,} are free{more}")
        self.wanted_bytes = wanted_bytes
        self.available_bytes = available_bytes


class ProcessLimit(RuntimeFault):
    """MLX and OpenBLAS would not get the addresses or the threads that they need. They then wait for ever, or
    end the process in words of their own.
    """


class CannotCut(RuntimeFault):
    """A model cannot be cut among so many machines, or not in this way; the message names what and why."""


class NotNumbers(RuntimeFault):
    """There is nothing to draw from: the model's answer to these tokens is NaN or infinite."""

    def __init__(self, tokens: int, dtype: str) -> None:
        super().__init__(
            f"after {tokens:,} tokens the model's logits are NaN or infinite, so no token can be drawn: "
            f"some weight is not a finite number, or the computation left the range of {dtype}. "
            "Check the weights at their source"
        )
        self.tokens = tokens


class QueueFull(RuntimeFault):
    """`waiting` requests have no place yet, and no more may wait."""

    def __init__(self, waiting: int) -> None:
        those = "1 request waits" if waiting == 1 else f"{waiting:,} requests wait"
        super().__init__(f"{those} for a place already, and no more may")
        self.waiting = waiting


class RankLost(RuntimeFault):
    """The machines that run a model together are not a group any more."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the other machines of this model cannot be reached: {why}")
        self.why = why


class Forked(RuntimeFault):
    """MLX computes in no fork of a process in which it has computed."""

    def __init__(self) -> None:
        super().__init__(
            "MLX has computed in the process that this one was forked from, and can do so in none of its "
            "forks. Start processes by multiprocessing's method 'spawn', or before anything of modelkit is "
            "used"
        )


class BadTokenIds(RuntimeFault):
    """An id is not in [0, vocabulary size): MLX would read outside the embedding table."""
