"""The list of models. One object is read by clients of OpenAI and of Anthropic alike, and has what others
look for to budget a conversation: Anthropic's, vLLM's, LM Studio's and llama.cpp's names for the length of
the context, which prompt and answer share.

For a model that is loaded it is the context that it was loaded with. A model's adapters stand behind it, each
as NAME+ADAPTER with its model as parent, as vLLM lists them: so a client's menu can choose one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from modelkit.errors import ModelkitError, RequestError
from modelkit.pack.adapters.package_adapters import inherited_adapters
from modelkit.pack.adapters.stored import read_stored
from modelkit.pack.metadata import FILE as METADATA
from modelkit.pack.metadata import Metadata, read_metadata
from modelkit.pack.pooling import context_tokens, read_pooling
from modelkit.packages import list_packages
from modelkit.requests.attached import read_texts
from modelkit.server.adapter_choice import split_adapters
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
    digest: str
    """Names of one package are one model in memory."""
    modified_s: float
    size_bytes: int
    trained_tokens: int | None
    """The longest context that it can have; None for one that cannot run here."""
    context_tokens: int | None
    """The one that it has unless it is loaded otherwise."""
    adapters: tuple[str, ...] = ()
    """Those that requests may choose, in the package's order."""
    adapter: str = ""
    """Those that this stands for, as they are named behind the model; "": the model as it is."""

    @property
    def id(self) -> str:
        return f"{self.name}+{self.adapter}" if self.adapter else self.name


def read_models(settings: Settings) -> list[Listed]:
    """Those of the store, in the order of `modelkit list`. Reads files."""
    models = [_listed(one) for one in list_packages(home=settings.home) if isinstance(one, Package)]
    return [one for model in models for one in (model, *_adapted(model))]


def read_model(settings: Settings, name: str) -> Listed:
    """name: as listed, or as requests may call it. Raises Refused where no model has it."""
    base, adapters = split_adapters(name)
    try:
        model = _listed(Store(settings.home).resolve(base))
    except ModelkitError as error:
        raise refused("model_not_found", str(error), "model") from error
    try:
        read_texts(adapters, model.adapters)
    except RequestError as error:
        raise refused("model_not_found", f"{model.name}: {error}", "model") from error
    return replace(model, adapter="+".join(adapters))


def written_model(model: Listed, loaded: Mapping[str, int]) -> dict[str, Any]:
    """loaded: the contexts of loaded models, by digest."""
    context = loaded.get(model.digest, model.context_tokens)
    made = datetime.fromtimestamp(model.modified_s, UTC)
    return {
        "id": model.id,
        "object": "model",
        "created": int(model.modified_s),
        "owned_by": "modelkit",
        **({"parent": model.name} if model.adapter else {}),
        "type": "model",
        "display_name": model.id,
        "created_at": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": context,
        "max_tokens": context,
        "max_model_len": context,
        "context_length": context,
        "max_context_length": context,
        "loaded": model.digest in loaded,
        "meta": {"n_ctx": context, "n_ctx_train": model.trained_tokens, "size": model.size_bytes},
    }


def written_models(models: Sequence[Listed], loaded: Mapping[str, int]) -> dict[str, Any]:
    names = [model.id for model in models]
    return {
        "object": "list",
        "data": [written_model(model, loaded) for model in models],
        "has_more": False,
        "first_id": names[0] if names else None,
        "last_id": names[-1] if names else None,
    }


def _listed(package: Package) -> Listed:
    trained, context = _contexts(package)
    name, digest, names = package.name.short, str(package.digest), _adapters(package)
    return Listed(name, digest, package.modified_s, package.size_bytes, trained, context, names)


def _adapters(package: Package) -> tuple[str, ...]:
    try:
        stored = read_stored(package.files, package.name.short)
        said = read_metadata(package.files.get(METADATA), package.name.short) if stored else Metadata()
        return tuple(one.name for one in inherited_adapters(stored, said))
    except ModelkitError:  # whoever loads it is told
        return ()


def _adapted(model: Listed) -> list[Listed]:
    return [replace(model, adapter=name) for name in model.adapters]


def _contexts(package: Package) -> tuple[int | None, int | None]:
    try:
        described = describe(read_json(package.files["config.json"], nonfinite=True))
        wanted = recipe(package).parameters.resolved().num_ctx
        most = context_tokens(described, read_pooling(package.files, described))
    except (ModelkitError, UnsupportedModel, KeyError):
        return None, None
    return described.context_length, min(wanted or most, most)
