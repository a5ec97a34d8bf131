"""`modelkit run`: one answer, whatever the prompt comes from; what is printed is what the model said."""

import io
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click import UsageError
from click.testing import Result

import modelkit as library
from modelkit.answers.generation import Generation
from modelkit.cli import answer
from modelkit.cli.options.prompts import read_prompt
from modelkit.cli.run import ask, command
from modelkit.cli.terminal import speaker
from modelkit.cli.terminal.screen import Aside, Waiting, echo, note
from modelkit.memory import Memory
from modelkit.output.events import Text
from modelkit.server.log import Log
from runtime.engine.request import Usage
from tests.support.checkpoints import random_tensor
from tests.support.peft_folders import write_peft

Run = Callable[..., Result]
Create = Callable[..., None]

TEMPLATE = "TEMPLATE {% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
GREEDY = ("-p", "temperature=0", "-p", "num_predict=8")


def said(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def expected(home: Path) -> Callable[..., Generation]:
    """What the library answers to the same prompt."""

    def generate(prompt: str, *, raw: bool = False, system: str | None = None) -> Generation:
        with library.load("story", temperature=0, num_predict=8) as model:
            return ask(model, prompt, system, raw=raw).whole()

    return generate


def test_the_text_and_a_line_end(modelkit: Run, created: Create, expected: Callable[..., Generation]) -> None:
    created("story")
    assert modelkit("run", "story", "Once", *GREEDY).stdout == expected("Once").text + "\n"


def test_json_is_one_object(modelkit: Run, created: Create, expected: Callable[..., Generation]) -> None:
    created("story")
    made, wanted = said(modelkit("run", "story", "Once", "upon", *GREEDY, "--json")), expected("Once upon")
    assert (made["text"], made["ids"]) == (wanted.text, list(wanted.ids))
    assert (made["reason"], made["cut"]) == ("length", "num_predict")
    assert made["usage"]["prompt_tokens"] == len("Once upon")
    assert made["usage"]["generated_tokens"] == 8


def test_piped_text_is_the_prompt(
    modelkit: Run, created: Create, expected: Callable[..., Generation]
) -> None:
    created("story")
    made = said(modelkit("run", "story", *GREEDY, "--json", stdin="Once\nupon\r\n"))
    assert made["ids"] == list(expected("Once\nupon").ids)


def test_piped_text_comes_before_the_arguments(
    modelkit: Run, created: Create, expected: Callable[..., Generation]
) -> None:
    created("story")
    made = said(modelkit("run", "story", "Go", "on.", *GREEDY, "--json", stdin="Once\n"))
    assert made["ids"] == list(expected("Once\nGo on.").ids)


def test_the_template_is_used(modelkit: Run, created: Create, expected: Callable[..., Generation]) -> None:
    created("story", TEMPLATE, "SYSTEM Be brief.")
    made = said(modelkit("run", "story", "Hi", *GREEDY, "--json"))
    assert made["usage"]["prompt_tokens"] == len("<system>Be brief.<user>Hi<assistant>")


def test_raw_leaves_the_template_out(modelkit: Run, created: Create) -> None:
    created("story", TEMPLATE)
    assert said(modelkit("run", "story", "Hi", "--raw", *GREEDY, "--json"))["usage"]["prompt_tokens"] == 2


def test_a_system_text_takes_the_packages_place(modelkit: Run, created: Create) -> None:
    created("story", TEMPLATE, "SYSTEM Be brief.")
    made = said(modelkit("run", "story", "Hi", "--system", "No.", *GREEDY, "--json"))
    assert made["usage"]["prompt_tokens"] == len("<system>No.<user>Hi<assistant>")


def test_a_system_text_needs_a_template(modelkit: Run, created: Create) -> None:
    created("story")
    result = modelkit("run", "story", "Hi", "--system", "No.")
    assert result.exit_code == 1
    assert "no chat template" in result.stderr


def test_a_seed_makes_the_same_text_again(modelkit: Run, created: Create) -> None:
    created("story")
    first = said(modelkit("run", "story", "Once", "-p", "num_predict=20", "--json"))
    again = modelkit("run", "story", "Once", "-p", "num_predict=20", "-p", f"seed={first['seed']}", "--json")
    assert said(again)["ids"] == first["ids"]


def test_stop_strings_add_up(modelkit: Run, created: Create, expected: Callable[..., Generation]) -> None:
    created("story")
    second = expected("Once").text[1]
    result = modelkit(
        "run", "story", "Once", *GREEDY, "-p", "stop=\x00\x00", "-p", f"stop={second}", "--json"
    )
    assert (said(result)["reason"], said(result)["stop"]) == ("stop", second)


def test_a_folder_runs_by_its_path(modelkit: Run, checkpoints: Path) -> None:
    assert said(modelkit("run", str(checkpoints / "target"), "Once", *GREEDY, "--json"))["ids"]


def test_verbose_goes_to_standard_error(modelkit: Run, created: Create) -> None:
    created("story")
    result = modelkit("run", "story", "Once", *GREEDY, "--verbose")
    assert "8 tokens, cut by its length, seed " in result.stderr
    assert "tokens/s" not in result.stdout


def test_notes_go_to_standard_error(modelkit: Run, created: Create, draft_line: str) -> None:
    created("story", draft_line)
    assert "note: story has no chat template" in modelkit("run", "story", "Once", *GREEDY).stderr


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("temprature=1", "Did you mean temperature?"),
        ("temperature=warm", "expected a number from 0 to 100"),
        ("num_gpu=1", "has no meaning here"),
    ],
)
def test_a_bad_parameter_is_one_clear_line(setting: str, words: str, modelkit: Run) -> None:
    result = modelkit("run", "story", "Once", "-p", setting)
    assert result.exit_code == 1
    assert words in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("Once", "-p", "temperature"),
        ("Once", "-p=temperature=0"),
        ("  ",),
        (),
        ("--json",),
        ("Once", "--raw", "--system", "x"),
        ("Once", "--raw", "-p", "think=on"),
        ("Once", "--raw", "-p", "think_tokens=3"),
        ("--raw", "--continue"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], modelkit: Run, created: Create) -> None:
    created("story")
    assert modelkit("run", "story", *arguments).exit_code == 2


def test_help_lists_every_parameter(modelkit: Run) -> None:
    shown = modelkit("run", "--help").stdout
    assert "  num_predict " in shown
    assert "  draft_num_predict " in shown


def test_piped_bytes_must_be_text(modelkit: Run) -> None:
    result = modelkit("run", "story", stdin=b"abc\xff")
    assert (
        result.exit_code,
        "what was piped in cannot be read: byte 3 (0xff) is not UTF-8" in result.stderr,
    ) == (1, True)


def test_an_unknown_name(modelkit: Run) -> None:
    result = modelkit("run", "story", "Once")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no model story" in result.stderr


class Pieces:
    """A stream of given pieces."""

    progress = None

    def __init__(self, *pieces: str) -> None:
        self._pieces = pieces
        self.result = Generation("".join(pieces), (), Usage(), "stop", 0)

    def events(self) -> list[Text]:
        return [Text(piece) for piece in self._pieces]

    def __enter__(self) -> "Pieces":
        return self

    def __exit__(self, *_: object) -> None:
        return


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("out", "shown"), [(Terminal, "a[2Jb"), (io.StringIO, "a\x1b[2Jb")])
def test_text_is_exact_in_a_pipe_and_harmless_on_a_terminal(
    out: type[io.StringIO], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", out())
    speaker.say(Pieces("a\x1b", "[2Jb"))  # type: ignore[arg-type]
    assert sys.stdout.getvalue() == shown  # type: ignore[attr-defined]


def test_timings_count_what_was_computed() -> None:
    usage = Usage(10, 4, 21, 30, 15, 0.0, 2.0, 4.0)
    memory = Memory(2_000_000, 0, 30_000, 10**9)
    model = SimpleNamespace(load_s=0.5, context_length=512, memory=memory, threads="1 thread of 2: why")
    shown = answer.timings(Generation("", (), usage, "stop", 7), model).splitlines()  # type: ignore[arg-type]
    assert "3 tokens/s  10 tokens, 4 of them cached" in shown[0]
    assert "5 tokens/s  21 tokens, ended by the model, seed 7" in shown[1]
    assert "15 of 30 drafted tokens accepted" in shown[2]
    assert answer.loading(model) == "loaded in 0.50 s: weights 2 MB"  # type: ignore[arg-type]
    assert shown[3].split() == ["threads", "1", "thread", "of", "2:", "why"]


def test_a_closed_standard_input_is_no_prompt(
    created: Create, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    created("story")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, match="the prompt is empty"):
        command.main(["story"], standalone_mode=False)


def test_an_answer_that_is_cut_says_so(modelkit: Run, created: Create) -> None:
    created("story")
    result = modelkit("run", "story", "Once", *GREEDY)
    assert (result.exit_code, "the answer was cut short: num_predict allows 8 tokens" in result.stderr) == (
        0,
        True,
    )
    full = modelkit("run", "story", "Once", "-p", "temperature=0", "-p", "num_ctx=9")
    assert "the answer was cut short: the context of 9 tokens is full" in full.stderr
    on = modelkit(
        "run", "story", "Once", *["-p", "temperature=0", "-p", "num_ctx=9", "-p", "context_shift=on"], "--raw"
    )
    assert "the context was full: " in on.stderr
    assert "earlier tokens had to be forgotten to continue the answer" in " ".join(on.stderr.split())
    assert "is cut" not in full.stdout


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--format", '{"type": "string", "minLength": 40}'),
        ("--regex", "[a-z]{50}"),
        ("--grammar", "start: /[a-z]{50}/"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_form_that_is_cut_is_a_failure(
    option: str, value: str, more: tuple[str, ...], modelkit: Run, created: Create
) -> None:
    created("story")
    result = modelkit("run", "story", "Once", *GREEDY, option, value, *more)
    assert result.exit_code == 1
    assert "the answer was cut short: num_predict allows 8 tokens" in " ".join(result.stderr.split())
    assert f"so it is not a complete answer to {option}" in " ".join(result.stderr.split())
    assert result.stdout
    if more:
        made = json.loads(result.stdout)
        assert (made["reason"], made["cut"]) == ("length", "num_predict")


def test_a_form_that_is_whole_is_no_failure(modelkit: Run, created: Create) -> None:
    created("story")
    whole = modelkit("run", "story", "Once", *GREEDY, "--format", '{"enum": ["ab"]}', "--json")
    assert (whole.exit_code, said(whole)["text"], said(whole)["cut"]) == (0, '"ab"', None)
    exact = modelkit("run", "story", "Once", "-p", "num_predict=4", "--format", '{"enum": ["ab"]}')
    assert (exact.exit_code, exact.stdout) == (0, '"ab"\n')
    full = modelkit("run", "story", "Once", "-p", "num_ctx=9", "--raw", "--regex", "[a-z]{50}", "--json")
    assert (full.exit_code, json.loads(full.stdout)["cut"]) == (1, "context")


def test_a_raw_prompt_needs_no_template(modelkit: Run, created: Create) -> None:
    created("story")
    assert "chat template" in modelkit("run", "story", "Once", *GREEDY).stderr
    assert "chat template" not in modelkit("run", "story", "Once", "--raw", *GREEDY).stderr


def test_a_dash_is_standard_input(modelkit: Run, created: Create) -> None:
    created("story")
    piped = modelkit("run", "story", *GREEDY, "--json", stdin="\ufeffOnce")  # a byte order mark is not text
    assert said(modelkit("run", "story", "-", *GREEDY, "--json", stdin="Once"))["ids"] == said(piped)["ids"]


def test_a_dash_on_a_terminal_reads_what_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = io.TextIOWrapper(io.BytesIO(b"Once upon\na time\n"))
    monkeypatch.setattr(typed, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", typed)
    assert read_prompt(("-",)) == "Once upon\na time"


def test_json_has_the_ids_on_one_line(modelkit: Run, created: Create) -> None:
    created("story")
    shown = modelkit("run", "story", "Once", *GREEDY, "--json").stdout
    assert re.search(r'^  "ids": \[[0-9, ]+\],$', shown, re.MULTILINE)
    assert not re.search(r"^ *[0-9]+,?$", shown, re.MULTILINE)


@pytest.mark.parametrize(("seconds", "words"), [(0.1, "1,340 tokens/s"), (10.0, "13.4 tokens/s")])
def test_rates_are_numbers_that_people_read(seconds: float, words: str) -> None:
    usage = Usage(134, 0, 1, 0, 0, 0.0, seconds, 0.0)
    model = SimpleNamespace(load_s=0.5, threads=None, context_length=512, memory=Memory(1, 0, 1, 1))
    assert words in answer.timings(Generation("", (), usage, "stop", 7), model)  # type: ignore[arg-type]


class Watched(Terminal):
    encoding = "utf-8"  # type: ignore[assignment]


def test_whoever_waits_sees_a_sign_of_life_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Watched())
    with Waiting("reading the prompt") as waiting:
        _until(lambda: "reading the prompt" in sys.stderr.getvalue())  # type: ignore[attr-defined]
        note("something")
        _until(lambda: sys.stderr.getvalue().count("reading") > 1)  # type: ignore[attr-defined]
        waiting.stop()
        echo("an answer", err=True)
    shown = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert "reading the prompt\x1b[K\r\x1b[K" in shown  # cleared before anything else is written
    assert shown.endswith("\r\x1b[Kan answer\n")


def test_a_log_line_stands_on_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Watched())
    with Waiting("loading"):
        _until(lambda: "loading" in sys.stderr.getvalue())  # type: ignore[attr-defined]
        Log(Aside(), as_json=True).line("request")
    assert '\x1b[K\r\x1b[K{"time"' in sys.stderr.getvalue()  # type: ignore[attr-defined]


def test_nobody_watches_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with Waiting("reading"):
        time.sleep(0.3)
    assert capsys.readouterr() == ("", "")


def _until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + 100
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_adapters_are_named_on_the_command_line(modelkit: Run, created: Create, tmp_path: Path) -> None:
    shapes = {"lora_A.weight": (3, 64), "lora_B.weight": (128, 3)}
    where = "base_model.model.model.layers.0.mlp.gate_proj"
    for name in ("law", "verse"):
        tensors = {
            f"{where}.{leaf}": random_tensor(f"{name} {leaf}", shape) * 9 for leaf, shape in shapes.items()
        }
        write_peft(tmp_path / name, tensors)
    created("story", *(f"ADAPTER {tmp_path / name}" for name in ("law", "verse")))

    def ids(*options: str) -> list[int]:
        return said(modelkit("run", "story", "Once", *GREEDY, "--json", *options))["ids"]

    with library.load("story", temperature=0, num_predict=8) as model:
        for options, adapters in (
            ((), None),
            (("--no-adapters",), []),
            (("--adapter", "law"), ["law"]),
            (("--adapter", "verse=0.5", "--adapter", "law=-2"), {"verse": 0.5, "law": -2}),
        ):
            assert ids(*options) == list(model.generate("Once", adapters=adapters).ids)
    refused = modelkit("run", "story", "Once", "--adapter", "prose")
    assert refused.exit_code == 1
    assert "no adapter 'prose'" in refused.stderr
    assert "It has law, verse." in refused.stderr
    both = modelkit("run", "story", "Once", "--adapter", "law", "--no-adapters")
    assert both.exit_code == 2
