"""`modelkit serve`: models over HTTP, for the clients that people have already."""

from typing import Any

import click

from modelkit.cli.home import complete_name
from modelkit.cli.screen import state
from modelkit.errors import ModelkitError

HOW_TO_GET_IT = "It comes with an extra: pip install 'modelkit-mlx[serve]'."


@click.command("serve")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_name)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=11434, show_default=True, help="Its port.")
def command(names: tuple[str, ...], **options: Any) -> None:
    """Serve models over HTTP.

    Each NAME is loaded at once and stays; any other model is loaded when a request asks for it.
    """
    try:
        import starlette  # noqa: F401  # pyright: ignore[reportUnusedImport]
        import uvicorn  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise ModelkitError(f"the server's libraries are not here: {error}", hint=HOW_TO_GET_IT) from error
    from modelkit.server.listening import Place
    from modelkit.server.serve import serve

    serve(names, Place(host=options["host"], port=options["port"]), state)
