"""What work a row wants of the sampler, apart from its numbers: rows of one kind are drawn together."""

from collections.abc import Sequence

from runtime.records import dataclass
from runtime.sampling.params import SamplingParams


@dataclass(frozen=True, slots=True)
class DrawKind:
    """The work that a row wants, without its numbers."""

    greedy: bool
    """It takes the likeliest token, without noise."""
    penalised: bool
    """By recent tokens."""
    biased: bool
    """By ids."""
    top_k: int = 0
    """The k it keeps; 0: all."""
    typical: bool = False
    """Whether typical_p filters; likewise top_p and min_p."""
    top_p: bool = False
    min_p: bool = False
    rejecting: bool = False
    """Drafts are judged by rejection sampling."""
    dry: bool = False
    """Repetitions are penalised."""
    ends: bool = False
    """It may not end at once."""
    top_n_sigma: bool = False
    dynamic: bool = False
    """Its temperature depends on the entropy."""
    xtc: bool = False

    @classmethod
    def of(cls, params: SamplingParams) -> "DrawKind":
        common = (params.greedy, params.penalised, bool(params.logit_bias or params.suppressed))
        also = {"dry": params.dry, "ends": bool(params.ends) and params.ends_from > 0}
        if params.greedy:
            return cls(*common, **also)
        filtered = (params.top_k, params.typical_p < 1, params.top_p < 1, params.min_p > 0)
        return cls(
            *common,
            *filtered,
            params.rejecting,
            **also,
            top_n_sigma=params.top_n_sigma > 0,
            dynamic=params.dynatemp_range > 0,
            xtc=params.xtc_probability > 0,
        )

    @classmethod
    def all_of(cls, kinds: Sequence["DrawKind"]) -> "DrawKind":
        """What acts on any of several kinds' rows, none of them `by_steps`, for `RowGroup.at_once`."""
        return cls(
            all(kind.greedy for kind in kinds),
            any(kind.penalised for kind in kinds),
            any(kind.biased for kind in kinds),
            dry=any(kind.dry for kind in kinds),
            ends=any(kind.ends for kind in kinds),
        )

    @property
    def wants_history(self) -> bool:
        return self.penalised or self.dry

    @property
    def by_steps(self) -> bool:
        """No one operation draws it, so it is drawn apart from others."""
        return self.rejecting or self.top_n_sigma or self.dynamic or self.xtc
