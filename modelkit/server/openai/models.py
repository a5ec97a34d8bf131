"""The list of models. One object is read by clients of OpenAI and of Anthropic alike, and has what others
look for to budget a conversation: vLLM's, LM Studio's and llama.cpp's names for the length of the context.

For a model that is loaded it is the context that it was loaded with.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from modelkit.errors import ModelkitError
from modelkit.packages import list_packages
from modelkit.server.faults import refused
from modelkit.settings import Settings
from modelkit.showing.texts import recipe
from modelkit.source.strict_json import read_json
from modelkit.store import Package, Store
from runtime.errors import UnsupportedModel
from runtime.models import describe
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Listed:
    """A stored model."""

    name: str
    modified_s: float
    size_bytes: int
    trained_tokens: int | None
    """The longest context that it can have; None for one that cannot run here."""
    context_tokens: int | None
    """The one that it has unless it is loaded otherwise."""


def read_models(settings: Settings) -> list[Listed]:
    """Those of the store, in the order of `modelkit list`. Reads files."""
    return [_listed(one) for one in list_packages(home=settings.home) if isinstance(one, Package)]


def read_model(settings: Settings, name: str) -> Listed:
    """Raises Refused where no model has the name."""
    try:
        return _listed(Store(settings.home).resolve(name))
    except ModelkitError as error:
        raise refused("model_not_found", str(error), "model") from error


def written_model(model: Listed, loaded: Mapping[str, int]) -> dict[str, Any]:
    """loaded: the contexts of loaded models, by name."""
    context = loaded.get(model.name, model.context_tokens)
    made = datetime.fromtimestamp(model.modified_s, UTC)
    return {
        "id": model.name,
        "object": "model",
        "created": int(model.modified_s),
        "owned_by": "modelkit",
        "type": "model",
        "display_name": model.name,
        "created_at": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "max_model_len": context,
        "context_length": context,
        "max_context_length": context,
        "loaded": model.name in loaded,
        "meta": {"n_ctx": context, "n_ctx_train": model.trained_tokens, "size": model.size_bytes},
    }


def written_models(models: Sequence[Listed], loaded: Mapping[str, int]) -> dict[str, Any]:
    names = [model.name for model in models]
    return {
        "object": "list",
        "data": [written_model(model, loaded) for model in models],
        "has_more": False,
        "first_id": names[0] if names else None,
        "last_id": names[-1] if names else None,
    }


def _listed(package: Package) -> Listed:
    trained, context = _contexts(package)
    return Listed(package.name.short, package.modified_s, package.size_bytes, trained, context)


def _contexts(package: Package) -> tuple[int | None, int | None]:
    try:
        trained = describe(read_json(package.files["config.json"], nonfinite=True)).context_length
        wanted = recipe(package).parameters.resolved().num_ctx
    except (ModelkitError, UnsupportedModel, KeyError):
        return None, None
    return trained, min(wanted or trained, trained)
