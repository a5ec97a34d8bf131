"""`modelkit run`: one answer to a prompt, or a conversation where there is none."""

import select
import sys
from io import UnsupportedOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from modelkit.cli.answer import outlook, say, timings, to_json
from modelkit.cli.forms import form_options, wanted_form
from modelkit.cli.home import complete_name
from modelkit.cli.limits import cache_options
from modelkit.cli.ui import emit_json, json_option, note
from modelkit.errors import RequestError
from modelkit.modelfile import PARAMETERS, Parameters

if TYPE_CHECKING:
    from modelkit.generation import GenerationStream
    from modelkit.memory import Memory
    from modelkit.model import Model

_PIPED_LIMIT_BYTES = 64 << 20
_PATIENCE_S = 1.0


def _epilog() -> str:
    """The table of parameters for --help."""
    lines = [f"  {row.name:<18} {row.help}" for row in PARAMETERS.values()]
    return "\b\nParameters, for -p NAME=VALUE:\n" + "\n".join(lines)


@click.command("run", epilog=_epilog())
@click.argument("name", shell_complete=complete_name)
@click.argument("prompt", nargs=-1)
@click.option(
    "-p",
    "--parameter",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter; may be repeated.",
)
@click.option("--system", metavar="TEXT", help="A system message instead of the package's.")
@form_options
@cache_options
@click.option("--raw", is_flag=True, help="No chat template: continue the prompt as it is.")
@click.option("--verbose", is_flag=True, help="Say how long it took, on standard error.")
@json_option
def command(
    name: str,
    prompt: tuple[str, ...],
    settings: tuple[str, ...],
    system: str | None,
    output: str | None,
    grammar: Path | None,
    regex: str | None,
    raw: bool,
    verbose: bool,
    as_json: bool,
    cache_memory: int | None,
    cache_disk: int | None,
) -> None:
    """Answer PROMPT with the model NAME, or without a PROMPT start a conversation.

    NAME is a package in the store, or the path of a model folder (./folder). Text piped in comes before
    PROMPT, on lines of its own; its last line end is left out.

    \b
    modelkit run story "Once upon a time" -p temperature=0 -p seed=7
    modelkit run story "Summarize this." < letter.txt
    modelkit run story "Who is in it?" --format @people.schema.json

    What was read of earlier prompts is kept, in memory while the model is loaded (--cache-memory), and on
    disk where --cache-disk allows it: then a long prompt that begins like an earlier one is not read twice.
    """
    if raw and system is not None:
        raise click.UsageError("--raw continues the prompt as it is, so --system has no place in it")
    parameters, text = _parameters(settings), _text(prompt)
    if text is None and as_json:
        raise click.UsageError("--json answers one PROMPT; give one, or pipe one in")
    if text is not None and not text.strip() and not raw:
        raise click.UsageError("the prompt is empty")
    form = wanted_form(output, grammar, regex)
    if text is None and form:
        raise click.UsageError(f"--{next(iter(form))} is for one PROMPT; give one, or pipe one in")
    import modelkit

    said: list[str] = []

    def foretell(memory: "Memory", shortage: str | None) -> None:
        """While nothing is loaded yet: whoever sees that it will not fit can still stop."""
        if verbose:
            click.echo(outlook(memory), err=True)
        if shortage is not None and not as_json:
            note(shortage)
            said.append(shortage)

    limits = {"cache_memory": cache_memory, "cache_disk": cache_disk}
    with modelkit.load(name, on_memory=foretell, **limits, **parameters) as model:
        if not as_json:
            for sentence in model.notes:
                if sentence not in said:
                    note(sentence)
        if text is None:
            _converse(model, name, system, raw=raw, verbose=verbose)
            return
        stream = ask(model, text, system, raw=raw, **form)
        if as_json:
            emit_json({"model": model.name, **to_json(stream.whole()), **_loading(model)})
        else:
            say(stream)
            click.echo()
        if verbose:
            click.echo(timings(stream.result, model), err=True)


def ask(model: "Model", text: str, system: str | None, *, raw: bool, **form: Any) -> "GenerationStream":
    """A stream of the answer to one prompt. A system text needs a chat template; the model says so.

    form: format, grammar or regex, as in `Model.generate`.
    """
    if system is None:
        return model.generate(text, raw=raw, stream=True, **form)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    return model.chat(messages, stream=True, **form)


def _loading(model: "Model") -> dict[str, object]:
    return {"load_s": model.load_s, "notes": list(model.notes)}


def _converse(model: "Model", name: str, system: str | None, *, raw: bool, verbose: bool) -> None:
    from modelkit.cli.repl import Session, converse
    from modelkit.cli.terminal import open_reader

    session = Session(model, name, system=system, raw=raw, verbose=verbose)
    converse(session, open_reader())


def _parameters(settings: tuple[str, ...]) -> dict[str, Any]:
    parameters = Parameters()
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r} has no `=`; write NAME=VALUE", param_hint="'-p'")
        parameters = parameters.added(name.strip(), value)
    return dict(parameters)


def _text(words: tuple[str, ...]) -> str | None:
    """The prompt: what was piped in, then the arguments. None where there is neither: a conversation."""
    piped, said = _piped(), " ".join(words)
    if piped is None:
        return said if words else None
    return "\n".join(part for part in (piped, said) if part)


def _piped() -> str | None:
    """Standard input as text; None where it is a terminal."""
    stdin: TextIO | None = sys.stdin
    if stdin is None:  # the caller closed it
        return ""
    if stdin.isatty():
        return None
    _explain_waiting()
    data = stdin.buffer.read(_PIPED_LIMIT_BYTES + 1)
    if len(data) > _PIPED_LIMIT_BYTES:
        raise RequestError(f"more than {_PIPED_LIMIT_BYTES:,} bytes were piped in")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise RequestError(
            f"what was piped in is not UTF-8 text: byte {error.start}", hint="Convert it first."
        ) from error
    return text.removesuffix("\n").removesuffix("\r")


def _explain_waiting() -> None:
    """A pipe that nobody writes to and nobody closes looks like a program that hangs."""
    try:
        ready, _, _ = select.select([sys.stdin], [], [], _PATIENCE_S)
    except (UnsupportedOperation, ValueError):  # no real file behind it
        return
    if not ready:
        note("waiting for standard input to end (redirect it from /dev/null if there is none)")
