"""`modelkit serve`: models over HTTP, for the clients that people have already."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelkit.cli.frame import Explained
from modelkit.cli.home import complete_name
from modelkit.cli.options.limits import Size, Whole, cache_options
from modelkit.cli.options.ranks import end_with_launcher, progress_of_ranks, rank_options
from modelkit.cli.options.settings import TABLE, read_settings, setting_option
from modelkit.cli.pull import fetched
from modelkit.cli.terminal.screen import Aside, Waiting, echo, note
from modelkit.errors import ModelkitError
from modelkit.python_faults import unread
from modelkit.settings.launchers import one_of_several
from modelkit.settings.serving import NO_KEY, can_be_key
from modelkit.text_files import read_text
from runtime.quoting import quoted

if TYPE_CHECKING:
    from modelkit.server.access import Access
    from modelkit.server.http.place import Place
    from modelkit.server.limits import Limits
    from modelkit.server.serve import ServeOptions

HOW_TO_GET_IT = "They come with an extra: pip install 'modelkit-mlx[serve]', or '.[serve]' in a checkout."
_LONGEST_BYTES = 4096


class Secret(click.ParamType):
    """Something out of a file: other users of a machine can read command lines. variable: where it may stand
    instead. blanks: those around it are part of it, but for the end of its line.
    """

    name = "@file"

    def __init__(self, what: str, variable: str, *, blanks: bool = False) -> None:
        self._what, self._variable = what, variable
        self._ends = "\r\n" if blanks else None

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text.startswith("@"):
            said = f"other users can read command lines: write @FILE, or set {self._variable}"
            self.fail(said, param, ctx)
        try:
            with Path(text[1:]).open("rb") as file:
                found = read_text(file, _LONGEST_BYTES).strip(self._ends)
        except (OSError, ValueError) as error:
            self.fail(f"{text[1:]} cannot be read: {unread(error)}", param, ctx)
        if not found:
            self.fail(f"{text[1:]} holds no {self._what}", param, ctx)
        if self._ends is None and not can_be_key(found):
            self.fail(f"{text[1:]} {NO_KEY}", param, ctx)
        return found


class Duration(click.ParamType):
    """A length of time, such as 5m."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from modelkit.durations import read_keep_alive

        try:
            return value if isinstance(value, float) else read_keep_alive(value, "it")
        except ModelkitError as error:
            self.fail(error.message, param, ctx)


_FILE = click.Path(path_type=Path, dir_okay=False)
_PORT, _COUNT = Whole(0, 65535), Whole(1)
KEY = Secret("key", "MODELKIT_API_KEY")
PASSWORD = Secret("password", "MODELKIT_SSL_KEYFILE_PASSWORD", blanks=True)


@click.command("serve", cls=Explained, tables={"Parameters, for -p NAME=VALUE": TABLE})
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_name)
@click.option("--host", metavar="ADDRESS", help="Address to listen on (MODELKIT_HOST).  [default: 127.0.0.1]")
@click.option(
    "--port", type=_PORT, metavar="PORT", help="Port to listen on; 0 picks a free one.  [default: 11434]"
)
@click.option(
    "--uds", type=_FILE, metavar="PATH", help="Listen on a Unix socket, which only its owner can use."
)
@click.option("--api-key", type=KEY, metavar="@FILE", help="Key that clients must send (MODELKIT_API_KEY).")
@click.option("--default-model", metavar="NAME", help="Model that answers requests for claude-* models.")
@click.option(
    "--allow-host", multiple=True, metavar="NAME", help="Host name by which clients may reach the server."
)
@click.option(
    "--origins", multiple=True, metavar="URL", help="Web site whose pages may use the server; * for any."
)
@click.option("--read-only", is_flag=True, help="Do not let clients pull, create, copy or delete models.")
@click.option(
    "--keep-alive",
    type=Duration(),
    metavar="TIME",
    help="How long an idle model stays loaded (MODELKIT_KEEP_ALIVE).  [default: 5m]",
)
@click.option(
    "--memory",
    type=Size(least=10**6),
    metavar="SIZE",
    help="Memory for all models together.  [default: what is free]",
)
@click.option(
    "--max-waiting",
    type=_COUNT,
    metavar="N",
    default=512,
    show_default=True,
    help="How many requests may wait for one model; further ones get 503.",
)
@click.option(
    "--max-connections",
    type=_COUNT,
    metavar="N",
    default=1000,
    show_default=True,
    help="How many connections may be open at once; further ones are closed.",
)
@click.option(
    "--max-body", type=Size(least=1000), metavar="SIZE", help="Largest request body.  [default: 16MiB]"
)
@click.option(
    "--grace",
    type=Duration(),
    metavar="TIME",
    default="30s",
    show_default=True,
    help="How long running requests may continue after the server is told to stop.",
)
@setting_option
@cache_options
@rank_options
@click.option("--json", "as_json", is_flag=True, help="Write log lines as JSON.")
@click.option("--log-prompts", type=_FILE, metavar="FILE", help="Log the full text of requests to this file.")
@click.option(
    "--metrics-alias",
    type=click.Choice(["vllm"]),
    help="Also export metrics under vLLM's names, for its dashboards.",
)
@click.option("--ssl-certfile", type=_FILE, metavar="FILE", help="Serve HTTPS with this certificate.")
@click.option("--ssl-keyfile", type=_FILE, metavar="FILE", help="The certificate's private key.")
@click.option(
    "--ssl-keyfile-password",
    type=PASSWORD,
    metavar="@FILE",
    help="Password of the private key (MODELKIT_SSL_KEYFILE_PASSWORD).",
)
def command(names: tuple[str, ...], **options: Any) -> None:
    """Serve models over HTTP.

    Each NAME is loaded at once and stays loaded; other models are loaded when a request asks for them. A
    NAME with a host in it (hf.co/org/name) is pulled first if it was not pulled before.

    \b
    modelkit serve story
    modelkit serve --port 8080 --keep-alive 1h
    modelkit serve --host 0.0.0.0 --api-key @key.txt --ssl-certfile cert.pem

    The first Ctrl-C lets running requests finish, the second stops the server at once. Without --host, only
    programs on this machine can reach the server. Web pages of other sites cannot, unless --origins names
    them.

    With --ranks, or under `mlx.launch`, models run one at a time, each on all ranks.
    """
    if len(set(names)) > 1 and (one_of_several() or (options["ranks"] or 1) > 1):
        raise click.UsageError("ranks run one model at a time; give one NAME")
    try:
        from modelkit.server.serve import serve
    except ImportError as error:
        raise without_libraries(error) from error
    wanted = _wanted(names, options)
    wanted = replace(wanted, names=tuple(fetched(name, quiet=False) for name in names))
    _warn(wanted.place, wanted.access)
    end_with_launcher()
    serve(wanted, echo, lambda name: Waiting(f"loading {name}", more=progress_of_ranks))


def without_libraries(error: ImportError) -> Exception:
    """They are an extra. Any other missing module is a bug."""
    if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "anyio", "h11"):
        return error
    return ModelkitError(f"the server's libraries are missing: {error}", hint=HOW_TO_GET_IT)


def _wanted(names: tuple[str, ...], options: dict[str, Any]) -> "ServeOptions":
    from modelkit.server.log import Log, PromptLog
    from modelkit.server.metrics import Metrics
    from modelkit.server.serve import ServeOptions
    from modelkit.settings import Settings

    settings = Settings.from_environment()
    if (keep_alive := options["keep_alive"]) is not None:
        settings = replace(settings, keep_alive_s=keep_alive)
    loading = {name: options[name] for name in ("cache_memory", "cache_disk", "ranks", "shards")}
    return ServeOptions(
        settings,
        names,
        place=_place(options),
        access=_access(options),
        limits=_limits(options),
        log=Log(Aside(), as_json=options["as_json"]),
        prompts=PromptLog(options["log_prompts"]) if options["log_prompts"] else None,
        metrics=Metrics(alias=options["metrics_alias"]),
        default_model=options["default_model"],
        load={**loading, **read_settings(options["given"])},
        memory_bytes=options["memory"],
    )


def _place(options: dict[str, Any]) -> "Place":
    from modelkit.server.http.place import Place
    from modelkit.settings.serving import key_password, server_address

    if options["uds"] is not None and (options["host"] or options["port"] is not None):
        raise click.UsageError("--uds replaces --host and --port; give either")
    if options["ssl_keyfile"] and not options["ssl_certfile"]:
        raise click.UsageError("--ssl-keyfile is the key of a certificate; --ssl-certfile is missing")
    if options["ssl_keyfile_password"] and not options["ssl_certfile"]:
        raise click.UsageError("--ssl-keyfile-password opens a certificate's key; --ssl-certfile is missing")
    host, port = server_address()
    certificate, key = (options[name] and str(options[name]) for name in ("ssl_certfile", "ssl_keyfile"))
    given = options["port"]
    return Place(
        options["host"] or host,
        port if given is None else given,
        uds=options["uds"],
        certificate=certificate,
        key=key,
        password=options["ssl_keyfile_password"] or key_password(),
    )


def _access(options: dict[str, Any]) -> "Access":
    from modelkit.server.access import Access, host_of, origin_of
    from modelkit.settings.serving import server_key

    hosts = {one: one if one == "*" else host_of(one) for one in options["allow_host"]}
    origins = {one: one if one == "*" else origin_of(one.rstrip("/")) for one in options["origins"]}
    for option, found, example in (
        ("--allow-host", hosts, "models.example.org"),
        ("--origins", origins, "https://chat.example.org"),
    ):
        for written, read in found.items():
            if read is None:
                raise click.BadParameter(f"{quoted(written)}; write it as {example}", param_hint=option)
    key = options["api_key"] or server_key()
    return Access(
        keys=(key,) if key else (),
        hosts=frozenset(one for one in hosts.values() if one),
        origins=frozenset(one for one in origins.values() if one),
        read_only=options["read_only"],
    )


def _limits(options: dict[str, Any]) -> "Limits":
    from modelkit.server.limits import Limits

    limits = Limits(
        waiting=options["max_waiting"], connections=options["max_connections"], grace_s=options["grace"]
    )
    return limits if options["max_body"] is None else replace(limits, body_bytes=options["max_body"])


def _warn(place: "Place", access: "Access") -> None:
    if place.private:
        return
    if not access.keys:
        note(f"anyone who can reach {place.host} can use the server: it has no key (--api-key @FILE)")
    elif not place.certificate:
        note(f"keys and texts go to {place.host} unencrypted: there is no TLS (--ssl-certfile)")
