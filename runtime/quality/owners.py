"""Which stored tensors a network's matrix is made of: asked of the family's own `adapt`, with numbers that
say where they come from.

A family may rename tensors, put several into one or lay them out anew; what decides formats needs to know
which of them end in one module, since they share it.
"""

from collections.abc import Mapping

import mlx.core as mx
import numpy as np

from runtime.loading.unused import adapted
from runtime.models import Described


def owners(described: Described, stored: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[str, ...]]:
    """Module of the network -> the stored tensors in its `weight`. stored: name -> shape, as floats.

    A tensor that no module has is in none of them.
    """
    names = list(stored)
    marked = {
        name: mx.broadcast_to(mx.array(float(place + 1)), stored[name]) for place, name in enumerate(names)
    }
    fitted = adapted(described, marked)
    found: dict[str, tuple[str, ...]] = {}
    for name, array in fitted.items():
        if name.endswith(".weight") and array.ndim > 1:
            marks = np.unique(np.array(array[..., 0]))
            places = [int(mark) - 1 for mark in marks if mark == int(mark) and 0 < mark <= len(names)]
            found[name.removesuffix(".weight")] = tuple(names[place] for place in places)
    return found
