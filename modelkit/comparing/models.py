"""What is compared: a model by its name or path, with the adapters that are named behind it.

NAME+ADAPTER+OTHER=0.5 chooses among those of the package, as clients of the server do. Where neither of two
names chooses any, each model answers as it does elsewhere: with all of its own. Where one does, the other has
those that it names and no more, so that NAME and NAME+ADAPTER differ by that adapter.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from modelkit.address import looks_like_path
from modelkit.errors import LoadError, RequestError
from modelkit.opening.opened import Opened
from modelkit.opening.read import open_model
from modelkit.opening.start import stored_weights
from modelkit.requests import attached
from modelkit.requests.attached import Chosen, read_adapters, read_texts
from modelkit.settings import Settings
from runtime.models import describe
from runtime.quoting import quoted
from runtime.records import dataclass

if TYPE_CHECKING:
    from runtime.loaded import LoadedModel

Name = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two."""

    opened: Opened
    chosen: Chosen
    """The adapters that answer, with their scales."""

    @property
    def stored_bytes(self) -> int:
        """Of what answers."""
        names = {name for name, scale in self.chosen if scale}
        added = sum(one.nbytes for one in self.opened.adapters if one.name in names)
        return self.opened.stored_bytes + added


def open_sides(stack: ExitStack, names: tuple[Name, Name], settings: Settings) -> tuple[Side, Side]:
    """Both, as long as the stack is. Raises what `open_model` raises, and RequestError for adapters that
    there are not.
    """
    told = [split_adapters(name) for name in names]
    some = any(adapters for _, adapters in told)
    opened = [stack.enter_context(open_model(name, settings)) for name, _ in told]
    first, second = (
        Side(one, _chosen(one, adapters, some=some)) for one, (_, adapters) in zip(opened, told, strict=True)
    )
    return first, second


def are_encoders(names: tuple[Name, Name], settings: Settings) -> bool:
    """Do both make embeddings and nothing else? Raises as `open_sides` does."""
    with ExitStack() as stack:
        sides = open_sides(stack, names, settings)
        return not any(describe(side.opened.inventory.config).writes for side in sides)


def split_adapters(name: Name) -> tuple[Name, list[str]]:
    """The model's own name or path, and the adapters behind it. No name of a package has a plus; a path may
    have some, in what there is under it. Raises RequestError.
    """
    if not isinstance(name, str) or "+" not in name:
        return name, []
    if looks_like_path(name) and os.path.lexists(name):
        return name, []
    folder, slash, last = name.rpartition("/")
    model, *adapters = last.split("+")
    if not all((model, *adapters)):
        raise RequestError(
            f"the model is {quoted(name)}, expected NAME, or NAME+ADAPTER for an adapter",
            hint="NAME+ONE+TWO=0.5 has two, the second at half its scale.",
        )
    return f"{folder}{slash}{model}", adapters


def _chosen(opened: Opened, texts: Sequence[str], *, some: bool) -> Chosen:
    """some: does one of the two names choose?"""
    names = tuple(one.name for one in opened.adapters)
    if not some:
        return read_adapters(None, names)
    try:
        return read_texts(texts, names)
    except RequestError as error:
        raise RequestError(f"{opened.label}: {error.message}", hint=error.hint) from error


def load_side(side: Side, dtype: str | None = "float32") -> "LoadedModel":
    """dtype: what is computed in; None: as `run` does. Raises LoadError."""
    from runtime.cpu import bind_blas
    from runtime.device import device
    from runtime.engine.adapters import Adapters
    from runtime.errors import RuntimeFault
    from runtime.loading.load import load_model
    from runtime.quality.reading import adapted

    opened, here = side.opened, device()
    config, weights = opened.inventory.config, stored_weights(opened.inventory, opened.converted)
    try:
        if here.kind == "cpu":
            bind_blas()
        model = load_model(config, weights, on=replace(here, fast_dtype=dtype or here.fast_dtype))
        if not side.chosen:
            return model
        wanted = [one for one in opened.adapters if one.name in dict(side.chosen)]
        adapters = Adapters(model, attached.sources(wanted, describe(opened.inventory.config)))
        adapters.bring(side.chosen)
    except RuntimeFault as fault:
        raise LoadError(f"{opened.label} cannot be loaded: {fault}") from fault
    return adapted(model, partial(adapters.alone, side.chosen))
