"""What is wrong with a text or a value from outside, in words of ours, where Python finds it: its own give
advice to who writes Python (`sys.set_int_max_str_digits`), or name its codecs and C's types. So is what the
system has no more of.
"""

import re

from modelkit.errors import ModelkitError

_NO_THREAD = ("can't start new thread", "Resource temporarily unavailable")  # Python's words, and MLX's
_NUMBER = re.compile(r"\[Errno -?[0-9]+\] ")


def fault(error: Exception) -> str:
    """Of what Python raised for it, `json` first of all."""
    said = str(error)
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} (0x{error.object[error.start]:02x}) is not UTF-8"
    if isinstance(error, UnicodeEncodeError):
        return "it has half a surrogate pair in a text"
    if "BOM" in said:
        return "it begins with a byte order mark; save it as UTF-8 without one"
    return number_fault(error) or said


def unread(error: Exception) -> str:
    """Why a file cannot be read as a text: what the system says, or which byte is none of a letter."""
    return os_reason(error) if isinstance(error, OSError) else fault(error)


def os_message(error: OSError) -> str:
    """What the system says, behind the file that it says it of: `/home/amy/x: permission denied`."""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{os_reason(error)}"


def os_reason(error: OSError) -> str:
    """What the system says, as a part of a sentence: `permission denied`."""
    return error.strerror.lower() if error.strerror else of_system(error)


def of_system(error: Exception) -> str:
    """What the system says, without the number that Python puts before it."""
    return _NUMBER.sub("", str(error))


def shortage(error: Exception) -> ModelkitError | None:
    """What to raise in its place where memory or threads have run out; None for any other error."""
    if isinstance(error, MemoryError):
        return ModelkitError(
            "there is not enough memory for this",
            hint="End other programs, or raise the limit that this one runs under (`ulimit -v`).",
        )
    if isinstance(error, RuntimeError) and str(error) in _NO_THREAD:
        return ModelkitError(
            "the system gives this process no more threads",
            hint="Raise the limits (`ulimit -u`, `ulimit -v`), or those of its container.",
        )
    return None


def number_fault(error: Exception) -> str | None:
    """Where a number is what is wrong: it is longer than Python reads and writes, or than something takes."""
    if "set_int_max_str_digits" in str(error):
        return "a whole number in it has thousands of digits"
    return "a number in it is too large" if isinstance(error, OverflowError) else None
