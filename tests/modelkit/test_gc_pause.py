"""What is made while the collector rests is not looked through as soon as it is back."""

import subprocess
import sys

# By themselves: the tests' own process has frozen what it imported.
_OLD = """
import gc
from modelkit.gc_pause import uncollected

seen = []
gc.callbacks.append(lambda *said: seen.append(said))
with uncollected():
    made = [[number] for number in range(10_000)]
assert any(one is made for one in gc.get_objects(generation=2))
new = [[number] for number in range(100)]  # one is enough to have a count over the threshold seen
assert gc.isenabled() and not seen, seen
"""
_FROZEN = """
import gc
from modelkit.gc_pause import uncollected

gc.freeze()
with uncollected():
    made = [[number] for number in range(10_000)]
assert gc.isenabled() and gc.get_freeze_count()
"""


def test_what_was_made_is_old_and_was_not_looked_through() -> None:
    subprocess.run([sys.executable, "-c", _OLD], check=True)


def test_what_others_have_frozen_stays_so() -> None:
    subprocess.run([sys.executable, "-c", _FROZEN], check=True)
