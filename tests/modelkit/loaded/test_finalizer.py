import subprocess
import sys
import threading

import pytest

from modelkit.loaded.finalizer import watch


class Held:
    """Tells that it was closed, and then fails or not."""

    def __init__(self, *, fails: bool) -> None:
        self.fails, self.closed = fails, threading.Event()

    def close(self) -> None:
        self.closed.set()
        if self.fails:
            raise OSError("no room to write what was learned")


class Holder:
    pass


def test_one_that_fails_to_close_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture) -> None:
    first, second, failing, sound = Holder(), Holder(), Held(fails=True), Held(fails=False)
    watch(first, failing)
    watch(second, sound)
    del first
    assert failing.closed.wait(60)
    del second
    assert sound.closed.wait(60)
    assert "no room to write what was learned" in caplog.text


LEAVING = """
import threading
import mlx.core as mx
from modelkit.loaded.finalizer import watch
from runtime.streams import on_own_thread
class Holder: pass
class Held:
    def close(self):
        begun.set()
        for _ in range(100):
            on_own_thread(lambda: mx.eval(mx.ones((99, 99)) @ mx.ones((99, 99))))
        print("closed", flush=True)
begun, holder = threading.Event(), Holder()
watch(holder, Held())
del holder
begun.wait()
"""


def test_a_program_that_ends_meanwhile_waits_for_what_is_being_closed() -> None:
    """What came back from MLX to an interpreter that is gone would abort it."""
    ended = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "closed\n", "")
