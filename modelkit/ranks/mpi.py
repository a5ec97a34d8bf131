"""What MPI wants of a process that it has started: a word before it ends, or all are said to have failed.

MLX says it when the last that knows its group is taken apart, which is never where a process ends at once
(`modelkit.cli.entry`), or threads still run.
"""

import ctypes
import os

_LIBRARY = "libmpi.so"
"""As MLX looks for it, where MLX_MPI_LIBNAME says no other name."""


def take_leave() -> None:
    """Say it, if MLX has begun with MPI and nobody has. For a rank that ends in order: it waits for all."""
    name = os.environ.get("MLX_MPI_LIBNAME", _LIBRARY)
    try:
        mpi = ctypes.CDLL(name, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        begun, over = ctypes.c_int(), ctypes.c_int()
        mpi.MPI_Initialized(ctypes.byref(begun))
        mpi.MPI_Finalized(ctypes.byref(over))
        if begun.value and not over.value:
            mpi.MPI_Finalize()
    except (OSError, AttributeError):  # it is not loaded, or is no MPI
        return
