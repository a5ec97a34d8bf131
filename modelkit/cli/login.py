"""`modelkit login`: a name and password for a registry. The password is never an argument: those are seen by
everybody on a machine, and kept by the shell.
"""

import sys

import click

from modelkit.cli.push import insecure_option
from modelkit.cli.terminal.screen import emit_json, note, state
from modelkit.cli.terminal.typed import TEXT, as_text
from modelkit.cli.terminal.ui import json_option
from modelkit.errors import RequestError
from modelkit.text_files import UTF_8

_LONGEST_BYTES = 64 << 10


@click.command("login")
@click.argument("host")
@click.option("-u", "--username", type=TEXT, metavar="USER", help="Your user name there. [asked for]")
@click.option("--password-stdin", is_flag=True, help="Read the password, or a token, from standard input.")
@insecure_option
@json_option
def command(host: str, username: str | None, password_stdin: bool, insecure: bool, as_json: bool) -> None:
    """Save a name and password for the registry HOST, after the registry has accepted them.

    They are saved where Podman and skopeo save theirs, in containers/auth.json, readable only by you.
    Logins of Docker and its credential helpers are used too, and never changed.

    \b
    modelkit login registry.example.org -u amy
    modelkit login ghcr.io -u amy --password-stdin < token.txt
    """
    from modelkit.fetch.registry.credentials import Credentials
    from modelkit.fetch.registry.login import host_of, login
    from modelkit.settings.places import credential_files

    place = host_of(host)
    user, password = _asked(username, password_stdin)
    done = login(place, Credentials(user, password), credential_files(), insecure=insecure)
    if as_json:
        emit_json({"host": place, "user": user, "file": str(done.file), "checked": done.checked})
        return
    if not done.checked:
        note(f"{place} accepts anybody, so the name and password could not be checked")
    state(f"logged in to {place} as {user} (saved in {done.file})")


def _asked(username: str | None, password_stdin: bool) -> tuple[str, str]:
    """Name and password, from the arguments, standard input, and the terminal."""
    if password_stdin:
        if username is None:
            raise click.UsageError("--password-stdin needs --username")
        raw = sys.stdin.buffer.read(_LONGEST_BYTES + 1)
        password = _text(raw.rstrip(b"\r\n"))
    else:
        if not sys.stdin.isatty():
            raise click.UsageError("no terminal to ask on: pipe the password in with --password-stdin")
        username = username or as_text(click.prompt("name", err=True))
        password = as_text(click.prompt("password", hide_input=True, err=True))
    if not password or not username or ":" in username:
        raise RequestError("a name without `:` and a password are needed")
    return username, password


def _text(raw: bytes) -> str:
    try:
        found = raw.decode(UTF_8)
    except UnicodeDecodeError:
        found = ""
    if len(raw) > _LONGEST_BYTES or "\n" in found or not found:
        raise RequestError("what was piped in is not a password: one line of text is expected")
    return found
