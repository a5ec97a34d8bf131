"""What works only where it was made: it stands on threads and memory of its process, and is given back by
whoever holds it.
"""

from typing import NoReturn


class Bound:
    """No copy of it would work, in this process or in another: `copy` and `pickle` are refused."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled: it uses memory and threads of this "
            "process. Load the model by its name in the other one; answers (Generation) can be sent."
        )
