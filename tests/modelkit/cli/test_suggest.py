"""Words that are not ours: misspelt ones, and those of other programs. What is said names what exists."""

import re
from collections.abc import Callable
from importlib import import_module

import click
import pytest
from click.testing import CliRunner, Result

from modelkit import words
from modelkit.cli.main import ALIASES, COMMANDS
from modelkit.modelfile import PARAMETERS
from runtime.quant import FORMATS, find_format

Run = Callable[..., Result]
TABLES = (words.COMMANDS, words.OPTIONS, words.PARAMETERS, words.FORMATS)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("craete", "Did you mean `create`?"),
        ("lst", "`list`"),
        ("download", "modelkit pull hf.co/OWNER/MODEL"),
        ("server", "`modelkit serve NAME`"),
        ("chat", "`modelkit run NAME`"),
        ("convert", "`modelkit create"),
        ("help", "`modelkit --help`"),
        ("pul", "`pull`"),
        ("qqqqqq", "`modelkit --help` lists them"),
    ],
)
def test_a_command_that_does_not_exist(typed: str, words: str, modelkit: Run) -> None:
    result = modelkit(typed)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("shwo", "Did you mean `show`?"),
        ("qqqqqq", "`modelkit cache --help` lists them"),
        ("delete", "There is no command 'delete'. `modelkit cache --help` lists them."),
    ],
)
def test_a_command_of_a_group_that_does_not_exist(typed: str, words: str, modelkit: Run) -> None:
    assert words in modelkit("cache", typed).stderr


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("--json", "list"), "it stands behind the command, `modelkit list --json`"),
        (("-p", "top_k=1", "run", "story"), "`modelkit run -p`"),
        (("--raw", "list"), "There is no option --raw."),
        (("-version",), "There is no option -version. Did you mean `--version`?"),
        (("--jsn", "list"), "There is no option --jsn."),
    ],
)
def test_an_option_of_a_command_stands_behind_it(typed: tuple[str, ...], words: str, modelkit: Run) -> None:
    result = modelkit(*typed)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("--seed", "0"), "-p seed=0"),
        (("--temperature=0.5",), "-p temperature=0.5"),
        (("--temp", "0"), "-p temperature=0"),
        (("--max-tokens", "9"), "-p num_predict=9"),
        (("--max-new-tokens", "9"), "-p num_predict=9"),
        (("-n", "128"), "-p num_predict=128"),
        (("-n128",), "-p num_predict=128"),
        (("-ngl", "99"), "no option -ngl: MLX keeps all layers on one device"),
        (("--n-gpu-layers", "99"), "MLX keeps all layers on one device"),
        (("--temprature", "1"), "-p temperature=1"),
        (("--think",), "-p think=VALUE"),
        (("--hidethinking",), "--hide-thinking"),
        (("--vrebose",), "Did you mean `--verbose`"),
        (("-verbose",), "There is no option -verbose. Did you mean `--verbose`"),
        (("-continue",), "There is no option -continue. Did you mean `--continue`"),
        (("-c", "-pseed=1", "-e"), "There is no option -e."),
        (("--top-p",), "-p top_p=VALUE"),
    ],
)
def test_an_option_that_does_not_exist(typed: tuple[str, ...], words: str, modelkit: Run) -> None:
    result = modelkit("run", "story", "Once", *typed)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("rm", "-f", "story"), "no option -f: nothing is asked"),
        (("create", "story", "--model", "./folder"), "the Modelfile: FROM ./folder"),
        (("serve", "-m", "story"), "modelkit serve NAME"),
        (("list", "-f"), "no option -f."),
    ],
)
def test_an_option_is_answered_for_its_command(typed: tuple[str, ...], words: str, modelkit: Run) -> None:
    """`rm -f` was told how to pipe a prompt into `run`."""
    assert words in modelkit(*typed).stderr


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (
            ("create", "story", "./folder"),
            "too many, './folder': `cli create` takes NAME. What a",
        ),
        (("create", "story", "./folder"), "-f FILE names another Modelfile."),
        (("pull", "hf.co/a/b", "story"), "--name NAME gives"),
        (("prune", "story"), "`cli prune` takes none. `modelkit rm NAME`"),
        (("compare", "a", "b", "c"), "'c': `cli compare` takes A and B."),
        (("cache", "show", "a", "b"), "`cli cache show` takes NAME."),
    ],
)
def test_an_argument_too_many(typed: tuple[str, ...], words: str, modelkit: Run) -> None:
    result = modelkit(*typed)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("run",), "Error: NAME is missing: `modelkit list` lists"),
        (("export", "story"), "Error: DIR|FILE.gguf is missing: a new folder"),
        (("cp", "story"), "Error: TARGET is missing: a second name"),
        (("push", "story"), "Error: ADDRESS is missing: such as oci://HOST"),
        (("rm",), "Error: NAME... is missing: `modelkit list` lists"),
    ],
)
def test_an_argument_too_few(typed: tuple[str, ...], words: str, modelkit: Run) -> None:
    result = modelkit(*typed)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


def test_every_argument_that_can_be_left_out_by_mistake_has_a_hint_and_no_other() -> None:
    found = {name: import_module(module).command for name, (module, _) in COMMANDS.items()}
    wanted = {
        (name, one.human_readable_name)
        for name, command in found.items()
        for one in command.params
        if isinstance(one, click.Argument) and one.required
    }
    assert set(words.BEYOND) <= set(found)
    hints = {f"{name} {one}" if f"{name} {one}" in words.MISSING else one for name, one in wanted}
    assert hints == set(words.MISSING)


def test_where_there_is_no_p_the_modelfile_is_the_place(modelkit: Run) -> None:
    assert "PARAMETER temperature 0" in modelkit("create", "--temperature", "0").stderr


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("max_tokens=9", "Here it is num_predict."),
        ("MAX_TOKENS=9", "Here it is num_predict."),
        ("temp=1", "Here it is temperature."),
        ("kv_format=q8_0", "Did you mean q8?"),
        ("kv_format=fp16", "Did you mean f16?"),
        ("keep_alive=5m", "--keep-alive"),
    ],
)
def test_a_parameter_of_another_program(setting: str, words: str, modelkit: Run) -> None:
    result = modelkit("run", "story", "Once", "-p", setting)
    assert result.exit_code == 1
    assert words in result.stderr


@pytest.mark.parametrize(
    ("typed", "ours"), [("fp16", "f16"), ("Q8_0", "q8"), ("q4_K_M", "q4"), ("4bit", "q4")]
)
def test_a_format_of_another_program(typed: str, ours: str, modelkit: Run) -> None:
    assert f"here it is {ours}" in modelkit("create", "-q", typed).stderr


def options_of(command: str) -> set[str]:
    found = import_module(COMMANDS[command][0]).command
    return {name for parameter in found.params for name in parameter.opts}


def test_every_word_points_at_something_that_exists() -> None:
    commands = {*COMMANDS, *ALIASES, "--help", "--version", ""}
    assert {word.ours for word in words.COMMANDS} <= commands
    assert {word.ours for word in words.PARAMETERS} <= {*PARAMETERS, ""}
    assert {word.ours for word in words.FORMATS} <= {row.name for row in FORMATS}
    assert {word.of for word in words.OPTIONS} <= {*COMMANDS, ""}
    for word in words.OPTIONS:
        named = re.findall(r"(?<!\S)--?[a-z][a-z-]*", word.ours)
        assert set(named) <= {*options_of(word.of or "run"), "-q"}, word
        setting = re.fullmatch(r"-p (\w+)=.*", word.ours)
        assert setting is None or setting[1] in PARAMETERS


def test_sentences_name_commands_that_exist() -> None:
    said = " ".join(word.instead for table in TABLES for word in table)
    said += " ".join((*words.BEYOND.values(), *words.MISSING.values()))
    named = set(re.findall(r"modelkit ([a-z]+)\b", said)) - {"run"}
    assert named <= set(COMMANDS)


def test_no_word_of_another_program_is_one_of_ours() -> None:
    assert not {word.theirs for word in words.COMMANDS} & {*COMMANDS, *ALIASES}
    assert not {word.theirs for word in words.PARAMETERS} & set(PARAMETERS)
    assert not [word for word in words.FORMATS if find_format(word.theirs)]
    assert not [word for word in words.OPTIONS if word.theirs in options_of(word.of or "run")]


@pytest.mark.parametrize("table", TABLES)
def test_no_word_stands_twice(table: tuple[words.Word, ...]) -> None:
    assert len({(word.theirs, word.of) for word in table}) == len(table)
    assert all(word.ours or word.instead for word in table)


def test_a_wrong_option_of_the_program_itself_is_wrong_usage() -> None:
    from modelkit.cli.main import cli

    assert CliRunner().invoke(cli, ["--nope"]).exit_code == 2
