"""What our modules are made of: `mlx.nn.Module` whose children and parameters are found at once.

`mlx.nn.Module` keeps both as items of a dict and finds one only after looking in two wrong places, 1.5 us
each time; a decoded token asks hundreds of times. Here each is a plain attribute as well. To go over all
modules, which a load does six times, it copies the tree of each one's children; here they are looked at where
they are.

Invariant: attribute and item are the same object, whoever sets, replaces or removes one or the other by the
ways that `mlx.nn` has (attributes, items, `pop`, `update`, `update_modules`).
"""

from collections.abc import Callable, Iterable
from typing import Any

import mlx.core as mx
import mlx.nn as nn

# Made once: `list | dict` is another object each time, and a load of a small model looks thousands of times.
_HOLDERS = (list, dict)
_ITEMS = (mx.array, dict, list, tuple)  # a module is a dict


class Module(nn.Module):
    """As `mlx.nn.Module` in every other way."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        vars(self)[name] = value

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        vars(self).pop(name, None)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, _ITEMS):
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

    def apply_to_modules(self, apply_fn: Callable[[str, nn.Module], Any]) -> "Module":
        """In MLX's order, which is that of a stack: the last child comes first."""
        left: list[tuple[str, nn.Module]] = [("", self)]
        while left:
            path, module = left.pop()
            apply_fn(path, module)
            _add_modules(f"{path}." if path else "", module.items(), left)
        return self


def _add_modules(before: str, items: Iterable[tuple[Any, Any]], found: list[tuple[str, nn.Module]]) -> None:
    """Adds the modules among these items of a module, and in lists and dicts among them, with their paths."""
    for name, value in items:
        if isinstance(value, nn.Module):
            found.append((f"{before}{name}", value))
        elif isinstance(value, _HOLDERS):
            inner = enumerate(value) if isinstance(value, list) else value.items()
            _add_modules(f"{before}{name}.", inner, found)
