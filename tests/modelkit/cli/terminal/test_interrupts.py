"""Ctrl-C: at once where there is nothing to lose, in good order else, and never for ever."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

# Each says that it is ready, and then takes its time; what it prints afterwards shows what was put away.
AT_ONCE = "with interrupts.AtOnce(): wait()"
IN_ORDER = """
try:
    wait()
except KeyboardInterrupt:
    say("put away")
    interrupts.handled()
    sys.exit(130)
"""
STUCK = """
try:
    wait()
finally:
    wait()
"""
SOON = "with interrupts.Soon(0.5):" + STUCK.replace("\n", "\n    ")
PROGRAM = """
import signal, sys, time
from modelkit.cli.terminal import interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs have it ignored
def say(text): print(text, flush=True)
def wait(): say("ready"); time.sleep(60)
interrupts.install()
with interrupts.InOrder():
{body}
"""


def run(
    body: str, *, interrupts: int, errors: "int | IO[str]" = subprocess.PIPE
) -> tuple[int, list[str], str]:
    """Exit code, what it said, and its standard error, where that is not put elsewhere."""
    indented = "\n".join(f"    {line}" for line in body.strip().splitlines())
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("{body}", indented)],
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    ) as program:
        assert program.stdout is not None
        said: list[str] = []
        try:
            for _ in range(interrupts):
                said.append(program.stdout.readline().strip())
                time.sleep(0.05)
                program.send_signal(signal.SIGINT)
            rest, heard = program.communicate(timeout=100)
        finally:
            program.kill()
    return program.returncode, said + rest.split("\n")[:-1], heard or ""


def test_where_there_is_nothing_to_lose_it_ends_at_once() -> None:
    assert run(AT_ONCE, interrupts=1) == (130, ["ready"], "")


def test_a_model_that_is_loaded_in_a_conversation_is_given_up_alone() -> None:
    loading = IN_ORDER.replace("wait()", "run._another(wanted)")
    body = f"""
import modelkit
from modelkit.cli import run
modelkit.load = lambda *_, **__: wait()
wanted = run.RunOptions("x", None, None, {{}}, {{}}, None, False, False, False, False, True, False)
{loading}"""
    assert run(body, interrupts=1) == (130, ["ready", "put away"], "")


def test_work_is_put_away() -> None:
    assert run(IN_ORDER, interrupts=1) == (130, ["ready", "put away"], "")


def test_a_second_one_does_not_wait() -> None:
    assert run(STUCK, interrupts=2) == (130, ["ready", "ready"], "")


def test_after_one_that_was_handled_the_next_is_a_first_one() -> None:
    twice = f"try: wait()\nexcept KeyboardInterrupt: interrupts.handled()\n{IN_ORDER.strip()}"
    assert run(twice, interrupts=2) == (130, ["ready", "ready", "put away"], "")


def test_one_answer_is_given_up_after_a_moment() -> None:
    assert run(SOON, interrupts=1) == (130, ["ready", "ready"], "interrupted\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a stream that takes nothing")
@pytest.mark.parametrize(("body", "interrupts"), [(AT_ONCE, 1), (IN_ORDER, 1), (STUCK, 2), (SOON, 1)])
def test_it_ends_where_its_last_word_cannot_be_written(body: str, interrupts: int) -> None:
    with open("/dev/full", "w") as full:
        assert run(body, interrupts=interrupts, errors=full)[0] == 130


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_whoever_has_it_ignored_is_not_interrupted() -> None:
    ignoring = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    program = f"from modelkit.cli.terminal import interrupts; interrupts.install(); {ignoring}"
    ran = subprocess.run(
        ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "True\n"


IMPORTING = """
import signal, sys
from modelkit.cli.terminal import interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)
interrupts.install()
calls = 0
def inside(frame):
    while frame is not None and type(frame.f_locals.get("self")).__name__ != "ExtensionFileLoader":
        frame = frame.f_back
    return frame is not None
def look(frame, event, _):
    global calls
    if event == "call" and inside(frame.f_back):
        calls += 1
        if calls == {call}:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)
with interrupts.InOrder():
    sys.setprofile(look)
    try:
        import mlx.core
        import time
        time.sleep(20)
    except KeyboardInterrupt:
        print("put away")
        sys.exit(130)
"""


@pytest.mark.parametrize("call", [2, 60, 300])
def test_one_that_meets_the_import_of_an_extension_waits_for_its_end(call: int) -> None:
    """MLX runs Python while its module is made, and took an exception there for an error of its own."""
    program = IMPORTING.replace("{call}", str(call))
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "put away\n", "")


FORGETTING = """
import signal, sys, time, weakref
from modelkit.cli.terminal import interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)
interrupts.install()
interrupts.LATER_S = 0.3  # a busy machine writes a line meanwhile
class Known:
    pass
class Gone:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
def look(frame, event, _):
    if event == "call" and frame.f_code.co_name == "_remove":
        sys.setprofile(None)
        signal.raise_signal(signal.SIGINT)
with interrupts.InOrder():
    try:
        {how}
        print("put off", flush=True)
        time.sleep(20)
    except KeyboardInterrupt:
        print("put away")
        sys.exit(130)
"""


@pytest.mark.parametrize(
    "how",
    ["Gone()", "one = Known(); held = weakref.WeakSet([one]); sys.setprofile(look); del one"],
    ids=["finalizer", "weak reference"],
)
def test_one_that_meets_an_object_that_goes_waits_for_its_end(how: str) -> None:
    """Python prints what is raised there, and goes on as if nothing had been."""
    program = FORGETTING.replace("{how}", how)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "put off\nput away\n", "")
