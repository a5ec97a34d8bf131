"""What NVFP4 has no numbers for. Its scales are floats of 8 bits (E4M3), and MLX has no factor of a matrix
beside them: a group whose largest number is below 0.006 becomes zeros, and none may be above 3136.

Scales of other formats reach as far as the weights do. A few groups may go (rows of tokens that were never
trained); a matrix without a tenth of its groups is another one, and the package would answer nonsense.
"""

from threading import Lock

import mlx.core as mx
import numpy as np

from modelkit.errors import SourceError
from modelkit.pack.planning.plan_types import Planned

_LARGEST_SCALE = 0x7E
"""448, the largest E4M3."""
_LARGEST = 7 * 448.0
"""The codes end at 6, after 4: what is above 7 scales is nearer to none of them."""
_MOST_LOST = 0.1
_INSTEAD = "Take a format with a wider range, such as mxfp4, mxfp8 or q4."


class Nvfp4Range:
    """Of one file: looks at its blocks, whichever thread packs them, and `check` says what was lost."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._lost: dict[str, tuple[int, int]] = {}

    def look(self, planned: Planned, values: mx.array, packed: tuple[mx.array, ...]) -> None:
        """At rows [rows, C], and the codes and scales [rows, C / 16] that were made of them. Raises
        SourceError for numbers that are too large.
        """
        if planned.encode is None or planned.encode.mode != "nvfp4":
            return
        coded = np.asarray(packed[1]).reshape(-1)
        lost = 0
        if (coded == 0).any() or (coded == _LARGEST_SCALE).any():
            largest = _largest(values, planned.encode.group_size)
            if float(largest.max()) > _LARGEST:
                raise SourceError(
                    f"`{planned.name}` has numbers that are too large for {planned.label}", hint=_INSTEAD
                )
            lost = int(((coded == 0) & (largest > 0)).sum())
        with self._lock:
            before, of = self._lost.get(planned.name, (0, 0))
            self._lost[planned.name] = before + lost, of + coded.size

    def check(self) -> None:
        """Raises SourceError for a matrix of which too much has become zeros."""
        for name, (lost, of) in sorted(self._lost.items()):
            if lost > _MOST_LOST * of:
                raise SourceError(
                    f"`{name}` has numbers that are too small for nvfp4: {lost / of:.0%} of its groups of 16 "
                    "would be zeros",
                    hint=_INSTEAD,
                )


def _largest(values: mx.array, group_size: int) -> np.ndarray:
    """The largest magnitude of each group, float32."""
    groups = mx.max(mx.abs(values.reshape(-1, group_size)), axis=-1)
    return np.asarray(groups.astype(mx.float32))
