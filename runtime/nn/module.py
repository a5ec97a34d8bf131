"""What our modules are made of: `mlx.nn.Module` whose children and parameters are found at once.

`mlx.nn.Module` keeps both as items of a dict and finds one only after looking in two wrong places, 1.5 us
each time; a decoded token asks hundreds of times. Here each is a plain attribute as well.

Invariant: attribute and item are the same object, whoever sets, replaces or removes one or the other by the
ways that `mlx.nn` has (attributes, items, `pop`, `update`, `update_modules`).
"""

from typing import Any

import mlx.core as mx
import mlx.nn as nn


class Module(nn.Module):
    """As `mlx.nn.Module` in every other way."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        vars(self)[name] = value

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        vars(self).pop(name, None)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, mx.array | dict | list | tuple):  # a module is a dict
            self[name] = value
        else:
            self.pop(name, None)
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self:
            del self[name]
        else:
            object.__delattr__(self, name)

    def pop(self, name: str, *default: Any) -> Any:
        if name in self:
            vars(self).pop(name, None)
        return super().pop(name, *default)
