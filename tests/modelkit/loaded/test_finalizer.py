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
