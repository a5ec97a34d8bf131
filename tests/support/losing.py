"""A model on several ranks that loses one: python -m tests.support.losing FOLDER RANKS SHARDS HOW

Prints JSON. HOW: a signal (KILL, STOP), sent to the last rank while an answer is written.
"""

import json
import os
import signal
import sys
import time
from typing import Any

import modelkit
from modelkit.errors import ModelkitError
from modelkit.ranks.current import current_group


def timed(answer: Any) -> dict[str, Any]:
    """What an answer ends with, and after how long."""
    began = time.monotonic()
    try:
        for _ in answer():
            pass
        said = "whole"
    except ModelkitError as error:
        said = error.message
    return {"said": said, "s": time.monotonic() - began}


def main(folder: str, ranks: str, shards: str, how: str) -> object:
    with modelkit.load(folder, ranks=int(ranks), shards=int(shards), num_ctx=128) as model:
        crew = current_group()
        assert crew is not None
        assert crew._children is not None
        processes = crew._children._processes
        endless = model.generate("Hello", stream=True, num_predict=-1, temperature=1.0, seed=1)
        next(iter(endless))
        os.kill(processes[-1].pid, getattr(signal, f"SIG{how}"))
        first = timed(lambda: endless)
        second = timed(lambda: model.generate("Again", stream=True, num_predict=3))
        anew = timed(lambda: modelkit.load(folder, ranks=int(ranks), shards=int(shards)))
    return {"first": first, "second": second, "anew": anew, "pids": [one.pid for one in processes]}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])), flush=True)
