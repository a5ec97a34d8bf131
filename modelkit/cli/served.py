"""The running server, as commands meet it."""

from contextlib import suppress
from typing import TYPE_CHECKING

from modelkit.address import looks_like_path
from modelkit.cli.terminal.screen import note
from modelkit.errors import ModelkitError, ModelNotFound
from modelkit.modelfile import Parameters
from modelkit.modelfile.parameters import at_load

if TYPE_CHECKING:
    from modelkit.client.connection import Connection
    from modelkit.client.model import Served
    from modelkit.settings import Settings

_GLANCE_S = 2.0  # to ask whether the server has a package


def connect() -> "Connection":
    """To the server that runs. Raises Unreachable, with what to do, where none does."""
    from modelkit.client import connection
    from modelkit.settings import Settings

    return connection.connect(Settings.from_environment())


def served_model(name: str, given: Parameters, limits: tuple[str, ...], *, quiet: bool) -> "Served | None":
    """The model of that name in a running server which has the same package; None where it has to be loaded
    here, after a note if that has a reason that the user does not know.

    given: PARAMETERs for all requests. limits: options that act only on a model that is loaded here.
    """
    connection = _with_package(name)
    if connection is None:
        return None
    reasons = limits
    try:
        reasons = limits or _settled(connection, name, given)
        if not reasons:
            from modelkit.client.model import Served

            model = Served(connection, name, given)
            reasons = model.differs
            if not reasons:
                return model
    except BaseException:
        connection.close()
        raise
    connection.close()
    if not quiet:
        where = f"the server at {connection.address} runs {name}"
        note(f"{where} without this {', '.join(reasons)}, so it is loaded here as well")
    return None


def _with_package(name: str) -> "Connection | None":
    """To a server that has the package which the name stands for here. None for any other case: a server that
    does not answer is no reason not to run.
    """
    from modelkit.client.connection import Connection, find_server
    from modelkit.settings import Settings
    from modelkit.settings.serving import server_key

    settings = Settings.from_environment()
    address = None if looks_like_path(name) else find_server(settings)
    if address is None:
        return None
    try:
        connection = Connection(address, server_key())
    except ModelkitError:
        return None
    with suppress(ModelkitError):
        found = connection.get("/modelkit/v1/find", wait_s=_GLANCE_S, model=name).get("digest")
        if found is not None and found == _digest_here(settings, name, found):
            return connection
    connection.close()
    return None


def _digest_here(settings: "Settings", name: str, otherwise: object) -> object:
    """The package's in this store; `otherwise` where it has none of that name: then only the server can run
    it.
    """
    from modelkit.store import Store

    try:
        return str(Store(settings.home).digest(name))
    except ModelNotFound:
        return otherwise


def _settled(connection: "Connection", name: str, given: Parameters) -> tuple[str, ...]:
    """Those of `given` for which the model would have to be loaded anew, where the server has not loaded it:
    it should not load it for nothing.
    """
    asked = at_load(given.keys() - {"num_ctx"})
    if not asked:
        return ()
    said = connection.get("/modelkit/v1/find", wait_s=_GLANCE_S, model=name)
    return () if said.get("loaded") is True else tuple(asked)
