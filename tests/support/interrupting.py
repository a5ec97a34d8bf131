"""Ctrl-C wherever Python looks for it: behind calls, where functions begin, and where loops begin again."""

import dis
import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

_LOOKS = ("CALL", "RESUME", "JUMP_BACKWARD")


def interrupted(function: Callable[[], object], at: int) -> bool:
    """Call it, with KeyboardInterrupt at the place of that number. False where it had ended by then."""
    left = at
    looks = dict[FrameType, bool]()

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= looks.get(frame, False)
            looks[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith(_LOOKS)
        if left < 0:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    gc.disable()  # it would call others' functions, from which no interrupt comes out
    try:
        sys.settrace(trace)
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
        gc.enable()
    return False
