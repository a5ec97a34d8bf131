"""Adapters that a client chooses with the name of a model, NAME+ADAPTER or NAME+ADAPTER=SCALE, as most
have no other field for it. No name of a package has a plus.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from modelkit.errors import RequestError
from modelkit.model import Model
from modelkit.requests.attached import Chosen, read_adapters, read_texts
from modelkit.server.faults import Refused, refused
from runtime.quoting import quoted


def split_adapters(name: str) -> tuple[str, list[str]]:
    """The model's own name, and the adapters that are named behind it."""
    model, *adapters = name.split("+")
    if not all((model, *adapters)):
        raise refused(
            "invalid_request",
            f"model is {quoted(name)}, expected NAME, or NAME+ADAPTER for an adapter",
            "model",
        )
    return model, adapters


def chosen_among(adapters: Sequence[str], names: Sequence[str]) -> Chosen:
    """Those behind a model's name, read. names: of the model's. Raises Refused, which is about `model`."""
    try:
        return read_texts(adapters, names)
    except RequestError as error:
        raise refused("invalid_request", str(error), "model") from error


def choosing(model: Model, adapters: Sequence[str]) -> Model:
    """The model, with these adapters in all that it answers; none: as it is. Raises Refused."""
    if not adapters:
        return model
    return cast("Model", _Choosing(model, chosen_among(adapters, model.adapters)))


def check_adapters(model: Model, options: Mapping[str, Any]) -> None:
    """For a call that takes no adapters, and is asked in the place of one that does: raise what that would
    say of them, Refused and RequestError.
    """
    if "adapters" in options:
        if isinstance(model, _Choosing):
            raise _named_twice()
        read_adapters(options["adapters"], model.adapters)


def _named_twice() -> Refused:
    said = "adapters are named in model and in adapters; name them in one"
    return refused("invalid_request", said, "adapters")


class _Choosing:
    def __init__(self, model: Model, adapters: Chosen) -> None:
        self._model, self._adapters = model, dict(adapters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def chat(self, *given: Any, **options: Any) -> Any:
        return self._model.chat(*given, **self._with(options))

    def generate(self, *given: Any, **options: Any) -> Any:
        return self._model.generate(*given, **self._with(options))

    def embed(self, *given: Any, **options: Any) -> Any:
        return self._model.embed(*given, **self._with(options))

    def logits(self, *given: Any, **options: Any) -> Any:
        return self._model.logits(*given, **self._with(options))

    def _with(self, options: dict[str, Any]) -> dict[str, Any]:
        if "adapters" in options:
            raise _named_twice()
        return {**options, "adapters": self._adapters}
