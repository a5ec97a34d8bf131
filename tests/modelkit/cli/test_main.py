"""The command line's frame: what it imports, how errors look, which exit codes there are."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from modelkit import __version__
from modelkit.cli.main import COMMANDS, LazyGroup, cli
from modelkit.errors import PlanError
from runtime.errors import UnsupportedModel

HEAVY = ("mlx", "numpy", "tokenizers", "jinja2", "prompt_toolkit", "tqdm", "gguf")
PROBE = """
import sys
from modelkit.cli.main import cli
try:
    cli(sys.argv[1:])
finally:
    print([name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""


def failing(error: BaseException) -> click.Group:
    group = LazyGroup("modelkit")

    @click.command()
    def command() -> None:
        raise error

    group.get_command = lambda ctx, cmd_name: command  # type: ignore[method-assign]
    return group


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["list"], ["create", "--help"], ["run", "--help"]]
)
def test_light_commands_import_nothing_heavy(arguments: list[str], home: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROBE.format(heavy=HEAVY), *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "MODELKIT_HOME": str(home)},
    )
    assert ran.stderr.splitlines()[-1] == "[]"


def test_version(modelkit: Callable[..., Result]) -> None:
    assert modelkit("--version").stdout == f"modelkit {__version__}\n"


def test_help_lists_every_command(modelkit: Callable[..., Result]) -> None:
    shown = modelkit("--help").stdout
    assert all(f"  {name} " in shown and text in shown for name, (_, text) in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, modelkit: Callable[..., Result]) -> None:
    command = import_module(COMMANDS[name][0]).command
    assert command.name == name
    assert command.help
    assert modelkit(name, "-h").exit_code == 0


def test_ls_is_list(modelkit: Callable[..., Result]) -> None:
    assert modelkit("ls").stdout == modelkit("list").stdout


def test_unknown_command_is_wrong_usage(modelkit: Callable[..., Result]) -> None:
    result = modelkit("bake")
    assert result.exit_code == 2
    assert "There is no command 'bake'" in result.stderr


def test_an_error_is_its_message_and_its_hint(home: Path) -> None:
    result = CliRunner().invoke(failing(PlanError("no room", hint="Make some.")), ["x"])
    assert (result.exit_code, result.stderr) == (1, "Error: no room\n  Make some.\n")


def test_an_error_of_the_runtime_is_one_line() -> None:
    result = CliRunner().invoke(failing(UnsupportedModel("no such model")), ["x"])
    assert (result.exit_code, result.stderr) == (1, "Error: no such model\n")


def test_an_error_cannot_control_the_terminal() -> None:
    result = CliRunner().invoke(failing(PlanError("a\x1b]52;c;ZXZpbA==\x07b")), ["x"])
    assert result.stderr == "Error: a]52;c;ZXZpbA==b\n"


def test_an_error_of_the_system_names_the_file() -> None:
    result = CliRunner().invoke(failing(PermissionError(13, "Permission denied", "/there")), ["x"])
    assert (result.exit_code, result.stderr) == (1, "Error: /there: permission denied\n")


def test_memory_that_runs_out_is_said_in_words() -> None:
    result = CliRunner().invoke(failing(MemoryError()), ["x"])
    assert result.exit_code == 1
    assert "Error: there is not enough memory for this" in result.output
    assert "ulimit -v" in result.output


def test_threads_that_run_out_are_said_in_words() -> None:
    result = CliRunner().invoke(failing(RuntimeError("can't start new thread")), ["x"])
    assert result.exit_code == 1
    assert "Error: the system gives this process no more threads" in result.output
    assert "ulimit -u" in result.output


def test_missing_mlx_says_what_to_install() -> None:
    result = CliRunner().invoke(failing(ModuleNotFoundError("No module", name="mlx.core")), ["x"])
    assert result.exit_code == 1
    assert "pip install '.[cpu]'" in result.stderr


def test_a_bug_stays_a_bug() -> None:
    result = CliRunner().invoke(failing(ZeroDivisionError()), ["x"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_an_interrupt_exits_with_130() -> None:
    result = CliRunner().invoke(failing(KeyboardInterrupt()), ["x"])
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


def test_on_a_terminal_an_interrupt_is_told_below_what_it_has_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    result = CliRunner().invoke(failing(KeyboardInterrupt()), ["x"])
    assert result.stderr.endswith("\ninterrupted\n")


def test_a_closed_pipe_is_quiet(home: Path) -> None:
    """The reader leaves before the first line is written."""
    command = subprocess.Popen(
        [sys.executable, "-m", "modelkit", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "MODELKIT_HOME": str(home)},
    )
    assert command.stdout is not None
    assert command.stderr is not None
    command.stdout.close()
    with command.stderr as errors:
        assert errors.read() == b""
    assert command.wait() == 141


def test_another_missing_module_is_a_bug() -> None:
    result = CliRunner().invoke(failing(ModuleNotFoundError("No module named 'yes'", name="yes")), ["x"])
    assert isinstance(result.exception, ModuleNotFoundError)


def test_the_shell_completes_names(created: Callable[..., None], modelkit: Callable[..., Result]) -> None:
    created("story")
    created("stories")
    words = {"COMP_LINE": "modelkit show sto", "COMP_WORD": "sto", "_MODELKIT_COMPLETE": "bash_complete"}
    result = CliRunner().invoke(cli, [], prog_name="modelkit", env=words)
    assert sorted(result.stdout.split()) == ["plain,stories", "plain,story"]


def test_completing_from_a_damaged_store_says_nothing(home: Path) -> None:
    (home / "store").mkdir(parents=True)
    (home / "store" / "index.json").write_text("{")
    words = {"COMP_WORDS": "modelkit show sto", "COMP_CWORD": "2", "_MODELKIT_COMPLETE": "bash_complete"}
    assert CliRunner().invoke(cli, [], prog_name="modelkit", env=words).output.strip() == ""


@pytest.mark.parametrize(
    "words", [["run", "a", "b", "--ranks", "9" * 5000], ["plan", "a", "--" + "9" * 5000]]
)
def test_a_word_of_thousands_of_letters_is_not_said_again(
    words: list[str], modelkit: Callable[..., Result]
) -> None:
    ran = modelkit(*words)
    assert ran.exit_code == 2
    assert len(ran.stderr) < 400
    assert ran.stderr.endswith((" is not a whole number from 1 to 64.\n", "9… (5,002 characters).\n"))


def test_wrong_usage_moves_no_cursor(modelkit: Callable[..., Result]) -> None:
    ran = modelkit("create", "one", "two\033[2J")
    assert ran.exit_code == 2
    assert "\033" not in ran.stderr
    assert "one argument too many, 'two\\x1b[2J'" in ran.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("serve", "--port", "0x1"), "'0x1' is not a whole number from 0 to 65535."),
        (("serve", "--port", "70000"), "'70000' is not a whole number from 0 to 65535."),
        (("embed", "a", "b", "--dimensions", "0"), "'0' is not a whole number of at least 1."),
        (("login", "", "-u", "x", "--password-stdin"), "'' is not a host: HOST or HOST:PORT is expected"),
        (("login", "a b", "-u", "x", "--password-stdin"), "Error: 'a b' is not a host: HOST or HOST:PORT is"),
    ],
)
def test_what_is_wrong_is_said_in_words(
    words: tuple[str, ...], said: str, modelkit: Callable[..., Result]
) -> None:
    ran = modelkit(*words)
    assert ran.exit_code != 0
    assert said in ran.stderr
