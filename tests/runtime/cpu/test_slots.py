"""Import slots of libraries that this process has loaded."""

import ctypes
import mmap
import sys

import mlx.core as mx
import pytest

from runtime.cpu.slots import Slot, find_slots, library_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ELF is Linux's format")


def test_finds_the_products_mlx_imports() -> None:
    if mx.default_device().type != mx.DeviceType.cpu:
        pytest.skip("another MLX backend")
    assert set(find_slots("libmlx.so", ["cblas_sgemm", "cblas_dgemm"])) == {"cblas_sgemm", "cblas_dgemm"}


def test_a_library_that_is_not_loaded_has_no_slots() -> None:
    assert find_slots("libnowhere.so", ["cblas_sgemm"]) == {}


def test_a_symbol_that_is_not_imported_has_no_slot() -> None:
    assert find_slots("libmlx.so", ["no_such_function"]) == {}


def test_writes_through_a_sealed_page_and_seals_it_again() -> None:
    page = mmap.mmap(-1, mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    libc = ctypes.CDLL(None)
    assert libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ) == 0
    slot = Slot(address + 8, sealed=True)
    slot.write(0x1234)
    assert slot.read() == 0x1234
    with open("/proc/self/maps") as maps:
        rights = next(line.split()[1] for line in maps if _covers(line, address))
    assert rights.startswith("r--")


def test_says_where_memory_cannot_be_unsealed() -> None:
    with pytest.raises(OSError, match="cannot be made writable"):
        Slot(mmap.PAGESIZE * 3, sealed=True).write(1)


def test_names_the_library_of_a_function() -> None:
    getpid = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value
    assert getpid is not None
    assert "libc" in library_of(getpid) or "musl" in library_of(getpid)
    assert library_of(8) == ""


def _covers(line: str, address: int) -> bool:
    start, stop = (int(part, 16) for part in line.split()[0].split("-"))
    return start <= address < stop
