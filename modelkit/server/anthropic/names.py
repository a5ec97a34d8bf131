"""Which model answers where a client asks for one of Anthropic's.

Claude Code asks for several (`claude-opus-...`, and `claude-haiku-...` for small things beside). A package
may bear that very name; else the default model of the server answers, else the only loaded one that writes.
"""

from starlette.requests import Request

from modelkit.errors import ModelkitError
from modelkit.server.faults import refused
from modelkit.server.serving import Serving, apart, serving_of
from modelkit.store.store import Store
from runtime.quoting import shown

_THEIRS = "claude-"


async def model_for(request: Request, name: str) -> str:
    """The name of the model that answers. Raises Refused where nobody has said which."""
    if not name.lower().startswith(_THEIRS):
        return name
    serving = serving_of(request)
    ready = [one for one in serving.pool.shown() if one.state == "ready"]
    if name in {one.name for one in ready}:
        return name
    loaded = [one.name for one in ready if one.writes is not False]
    if await apart(request, _stored, serving, name):
        return name
    if serving.default_model is not None:
        return serving.default_model
    if len(loaded) == 1:
        return loaded[0]
    among = f"loaded are {', '.join(loaded)}" if loaded else "no model that writes text is loaded"
    raise refused(
        "model_not_found",
        f"model: {shown(name)} is not a model of this server, and {among}; start it with "
        "--default-model NAME, or ask for a model by its own name",
        "model",
    )


def _stored(serving: Serving, name: str) -> bool:
    try:
        Store(serving.settings.home).resolve(name)
    except ModelkitError:
        return False
    return True
