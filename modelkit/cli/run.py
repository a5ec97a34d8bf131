"""`modelkit run`: one answer to a prompt, or a conversation where there is none."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from modelkit.cli.answer import forgot, left_out, loading, outlook, timings, to_json, why_cut
from modelkit.cli.frame import Explained
from modelkit.cli.home import complete_model
from modelkit.cli.options.adapters import adapter_options, wanted_adapters
from modelkit.cli.options.forms import form_options, is_whole, wanted_form
from modelkit.cli.options.limits import cache_options
from modelkit.cli.options.prompts import read_prompt
from modelkit.cli.options.ranks import progress_of_ranks, rank_options
from modelkit.cli.options.settings import TABLE, read_settings, setting_option
from modelkit.cli.terminal import interrupts
from modelkit.cli.terminal.screen import Waiting, echo, emit_json, note, state
from modelkit.cli.terminal.typed import TEXT
from modelkit.cli.terminal.ui import count, json_option
from modelkit.modelfile import Parameters
from modelkit.settings.launchers import one_of_several
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.answers.generation import Generation
    from modelkit.client.model_like import Answer, ModelLike
    from modelkit.memory import Memory

# Options that a model is loaded with.
_LIMITS = ("cache_memory", "cache_disk", "ranks", "shards")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line asks for."""

    name: str
    text: str | None
    """The prompt; None for a conversation."""
    system: str | None
    form: dict[str, str]
    """format, grammar or regex, as in `Model.generate`."""
    settings: dict[str, Any]
    """Parameters and limits that `load` takes."""
    adapters: tuple[str, ...] | None
    """NAME or NAME=SCALE for each that is to answer; None for all, as they are."""
    raw: bool
    go_on: bool
    """Go on with the last conversation."""
    hide_thinking: bool
    verbose: bool
    local: bool
    """Load the model here, whatever runs elsewhere."""
    as_json: bool

    @classmethod
    def read(cls, options: dict[str, Any]) -> "RunOptions":
        """From what click has read; `options` is used up. May read standard input."""
        settings = read_settings(options.pop("given"))
        limits = {name: options.pop(name) for name in _LIMITS}
        text = read_prompt(options.pop("prompt"))
        form = wanted_form(*(options.pop(name) for name in ("output", "grammar", "regex")))
        adapters = wanted_adapters(options.pop("adapter"), none=options.pop("no_adapters"))
        settings = {**limits, **settings}
        return cls(text=text, form=form, settings=settings, adapters=adapters, **options).check()

    def check(self) -> "RunOptions":
        """Raises UsageError for options that have nothing to do with each other."""
        idle = [f"-p {name}" for name in ("think", "think_tokens") if name in self.settings]
        idle += ["--system"] * (self.system is not None) + ["--continue"] * self.go_on
        if self.raw and idle:
            raise click.UsageError(f"--raw continues the prompt as it is, so {idle[0]} would have no effect")
        if self.text is None and self.as_json:
            raise click.UsageError("--json answers one PROMPT; give one, or pipe one in")
        if self.text is not None and not self.text.strip() and not self.raw:
            raise click.UsageError("the prompt is empty")
        if self.text is not None and self.go_on:
            raise click.UsageError("--continue continues a conversation and takes no PROMPT")
        return self


@click.command("run", cls=Explained, tables={"Parameters, for -p NAME=VALUE": TABLE})
@click.argument("name", shell_complete=complete_model)
@click.argument("prompt", nargs=-1, type=TEXT)
@setting_option
@click.option("--system", type=TEXT, metavar="TEXT", help="System message to use instead of the package's.")
@form_options
@cache_options
@rank_options
@adapter_options
@click.option("--raw", is_flag=True, help="Use no chat template; continue the prompt as it is.")
@click.option("--local", is_flag=True, help="Load the model here, even if a server has it.")
@click.option("-c", "--continue", "go_on", is_flag=True, help="Continue the last conversation.")
@click.option("--hide-thinking", is_flag=True, help="Do not print the model's thinking.")
@click.option("--verbose", is_flag=True, help="Print timings to standard error.")
@json_option
@click.pass_context
def command(ctx: click.Context, **options: Any) -> None:
    """Answer PROMPT with the model NAME; without PROMPT, start a conversation.

    NAME is a package in the store, or the path of a model folder (./folder). A name with a host in it
    (hf.co/org/name) is pulled first if it was not pulled before. Text piped in is put on lines of its own
    before PROMPT, without its last line end. The PROMPT - means standard input.

    \b
    modelkit run story "Once upon a time" -p temperature=0 -p seed=7
    modelkit run story "Summarize this." < letter.txt
    modelkit run story "Who is in it?" --format @people.schema.json

    Earlier prompts are cached, in memory while the model is loaded (--cache-memory), and on disk if
    --cache-disk allows it. A long prompt that begins like an earlier one is then not processed twice.

    If `modelkit serve` is running and has the same package, the server answers, so that the weights are in
    memory only once; --local loads them here.

    All adapters of a package take part in an answer, at scale 1, unless --adapter chooses some of them or
    --no-adapters leaves them out.

    A note tells when num_predict or the context cut an answer short. If the answer was to follow --format,
    --grammar or --regex, it is then incomplete, and the exit code is 1.
    """
    from modelkit.cli.pull import fetched

    wanted = RunOptions.read(options)
    wanted = replace(wanted, name=fetched(wanted.name, quiet=wanted.as_json))
    if wanted.text is None:
        with _load(wanted) as model:
            _converse(model, wanted)
        return
    with interrupts.Soon(), _load(wanted) as model:
        whole = _answer(model, wanted, wanted.text)
    if not whole:
        ctx.exit(1)


def ask(model: "ModelLike", text: str, system: str | None, *, raw: bool, **form: Any) -> "Answer":
    """A stream of the answer to one prompt. A system text needs a chat template; the model says so."""
    if system is None:
        return model.generate(text, raw=raw, stream=True, **form)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    return model.chat(messages, stream=True, **form)


def _load(wanted: RunOptions) -> "ModelLike":
    """The model, its notes said: in a running server that has it, else here."""
    alone = not one_of_several() and all(
        (wanted.settings.get(name) or 1) == 1 for name in ("ranks", "shards")
    )
    model = _served(wanted) if alone and not wanted.local else None
    from modelkit.loaded.embedding import no_text

    model = model or _loaded(wanted)
    if not model.writes:
        model.close()
        raise no_text(model.name)
    return model


def _another(wanted: RunOptions) -> "ModelLike":
    """In the middle of a conversation, which there is to lose: an interrupt ends the loading alone."""
    with interrupts.InOrder():
        return _load(wanted)


def _served(wanted: RunOptions) -> "ModelLike | None":
    from modelkit.cli.served import served_model

    limits = tuple(name for name in _LIMITS if wanted.settings.get(name) is not None)
    with Waiting(f"loading {wanted.name}"), interrupts.AtOnce():
        model = served_model(wanted.name, _given(wanted), limits, quiet=wanted.as_json)
    if model is not None:
        _say_notes(model, wanted, [])
        if wanted.verbose:
            state(f"answered by the server at {model.address}", err=True)
            state(loading(model), err=True)
    return model


def _given(wanted: RunOptions) -> Parameters:
    return Parameters({name: value for name, value in wanted.settings.items() if name not in _LIMITS})


def _loaded(wanted: RunOptions) -> "ModelLike":
    """What will not fit is said before anything is loaded: one can still stop."""
    import modelkit

    said: list[str] = []

    def foretell(memory: "Memory", shortage: str | None) -> None:
        if wanted.verbose:
            state(outlook(memory), err=True)
        if shortage is not None and not wanted.as_json:
            note(shortage)
            said.append(shortage)

    with Waiting(f"loading {wanted.name}", more=progress_of_ranks), interrupts.AtOnce():
        model = modelkit.load(wanted.name, on_memory=foretell, **wanted.settings)
    _say_notes(model, wanted, said)
    if wanted.verbose:
        state(loading(model), err=True)
    return model


def _say_notes(model: "ModelLike", wanted: RunOptions, said: list[str]) -> None:
    """Those that were not said yet. With --raw nobody asks for a template, so its lack is not noted."""
    from modelkit.chat.find import NO_TEMPLATE

    for sentence in () if wanted.as_json else model.notes:
        if sentence not in said and not (wanted.raw and sentence.endswith(NO_TEMPLATE)):
            note(sentence)


def _answer(model: "ModelLike", wanted: RunOptions, text: str) -> bool:
    """One answer; False for one that --format and the like shaped and that is not whole."""
    from modelkit.cli.terminal.speaker import say
    from modelkit.requests.attached import read_texts

    options: dict[str, Any] = dict(wanted.form)
    if wanted.adapters is not None:
        options["adapters"] = dict(read_texts(wanted.adapters, model.adapters))
    stream = ask(model, text, wanted.system, raw=wanted.raw, **options)
    if wanted.as_json:
        with Waiting("answering"):
            answer = stream.whole()
        facts = {"load_s": model.load_s, "notes": list(model.notes)}
        emit_json({"model": model.name, **to_json(answer), **facts})
    else:
        try:
            answer = say(stream, thinking=not wanted.hide_thinking)
        except KeyboardInterrupt:
            if sys.stdout.isatty():
                echo()
            raise
        echo()
        for sentence in filter(None, (left_out(answer, model), forgot(answer))):
            note(sentence)
    if wanted.verbose:
        echo(timings(answer, model), err=True)
    return _explain_cut(answer, model, wanted)


def _explain_cut(answer: "Generation", model: "ModelLike", wanted: RunOptions) -> bool:
    sentence = why_cut(answer, model)
    if sentence is None:
        return True
    whole = not wanted.form or is_whole(wanted.form, answer.text)
    what = "" if whole else f", so it is not a complete answer to --{next(iter(wanted.form))}"
    note(f"{sentence}{what}")
    return whole


def _converse(model: "ModelLike", wanted: RunOptions) -> None:
    from modelkit.cli.home import stored_names
    from modelkit.cli.repl import Session, converse
    from modelkit.cli.repl.blocks import unfinished
    from modelkit.cli.repl.completion import offers
    from modelkit.cli.repl.saved import ConversationFile, last
    from modelkit.cli.terminal.lines import open_reader
    from modelkit.requests.attached import read_texts
    from modelkit.settings import Settings

    home = Settings.from_environment().home
    earlier = last(home, model.name) if wanted.go_on else None
    session = Session(
        model,
        wanted.name,
        system=wanted.system,
        raw=wanted.raw,
        verbose=wanted.verbose,
        file=ConversationFile(home, model.name, earlier.path if earlier else None),
        load=lambda name: _another(replace(wanted, name=name)),
    )
    if earlier is not None:
        session.conversation.add(*earlier.messages)
        session.settings.system = session.settings.system or earlier.system
        note(f"continuing a conversation of {count(len(earlier.messages), 'message')}")
    session.settings.thinking = not wanted.hide_thinking
    session.settings.form, session.settings.given = wanted.form, _given(wanted)
    if wanted.adapters is not None:
        session.settings.adapters = read_texts(wanted.adapters, model.adapters)
    try:
        converse(session, open_reader(lambda line: offers(line, stored_names), unfinished))
    finally:
        session.close()
