"""What kernels make of modules is made once, and anew where somebody has put other weights into them."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def made_once(
    kernels: Any,
    kept: dict[Any, Any],
    key: Hashable,
    modules: Sequence[Any],
    make: Callable[..., T],
    *given: Any,
) -> T:
    """make(*given), which goes by the weights of these modules (None: no module); kept under the key."""
    found = kept.get(key)
    if found is not None and found[0].same(modules):
        return found[1]
    made = make(*given)
    kept[key] = (kernels.Watch(modules), made)
    return made
