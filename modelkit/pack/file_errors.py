"""The boundary at which what a system says about a file becomes an error of ours.

Rooms that read or write files name the file and say what to do; what none of them thought of ends here, so
that callers see ModelkitError and nothing else.
"""

from collections.abc import Generator
from contextlib import contextmanager

from modelkit.disk_faults import by_writing, disk_fault
from modelkit.errors import SourceError
from modelkit.python_faults import os_message


@contextmanager
def worded() -> Generator[None]:
    """Raise SourceError for an OSError of the block, naming its file, or StoreError for one that only who
    writes gets. BrokenPipeError passes as it is.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if by_writing(error):
            raise disk_fault(error) from error
        raise SourceError(os_message(error)) from error
