"""Import slots of a loaded ELF library: find them, read them, point them elsewhere.

A shared library calls an imported function through a pointer in its global offset table. Its dynamic section
lists those pointers as relocations of type JUMP_SLOT (calls through the PLT) and GLOB_DAT (calls without
one). Writing another address there re-routes every later call of this one library; files on disk and other
libraries stay as they are.

Relies on: 64-bit little-endian ELF, x86-64 or aarch64, and a C library with `dl_iterate_phdr` (glibc, musl).
Source: System V ABI, chapter 5 (dynamic linking), and its x86-64 and AArch64 supplements.
"""

import ctypes
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from runtime.records import dataclass

PT_DYNAMIC, PT_GNU_RELRO = 2, 0x6474E552
DT_PLTRELSZ, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_STRSZ, DT_JMPREL = 2, 5, 6, 7, 8, 10, 23
SLOT_TYPES = {"x86_64": {7, 6}, "aarch64": {1026, 1025}}  # JUMP_SLOT, GLOB_DAT
RELA = struct.Struct("<QQq")  # offset, symbol index << 32 | type, addend
SYM_BYTES = 24


class _Phdr(ctypes.Structure):
    _fields_: ClassVar = [
        ("type", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("offset", ctypes.c_uint64),
        ("vaddr", ctypes.c_uint64),
        ("paddr", ctypes.c_uint64),
        ("filesz", ctypes.c_uint64),
        ("memsz", ctypes.c_uint64),
        ("align", ctypes.c_uint64),
    ]


class _PhdrInfo(ctypes.Structure):
    _fields_: ClassVar = [
        ("base", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("phdr", ctypes.POINTER(_Phdr)),
        ("phnum", ctypes.c_uint16),
    ]


@dataclass(frozen=True, slots=True)
class Slot:
    """One pointer-sized cell of a library's offset table."""

    address: int
    """Of the cell, in this process."""
    sealed: bool
    """The loader made its page read-only."""

    def read(self) -> int:
        return ctypes.c_uint64.from_address(self.address).value

    def write(self, target: int) -> None:
        """Point the slot at `target`. One aligned store: a concurrent caller sees the old or the new address.

        Raises OSError where the system refuses to unseal the page.
        """
        if self.sealed:
            _protect(self.address, mmap.PROT_READ | mmap.PROT_WRITE)
        ctypes.c_uint64.from_address(self.address).value = target
        if self.sealed:
            _protect(self.address, mmap.PROT_READ)


@dataclass(frozen=True, slots=True)
class _Library:
    base: int
    dynamic: int
    relro: range


def find_slots(library: str, symbols: Iterable[str]) -> dict[str, list[Slot]]:
    """The slots through which the loaded `library` (a file name) calls `symbols`; others are left out."""
    types = SLOT_TYPES.get(os.uname().machine)
    loaded = _find(library) if types else None
    if types is None or loaded is None:
        return {}
    tags = dict(_dynamic(loaded))
    wanted = _spelled(ctypes.string_at(tags[DT_STRTAB], tags[DT_STRSZ]), symbols)
    found: dict[str, list[Slot]] = {}
    for table, size in ((DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)):
        relocations = ctypes.string_at(tags[table], tags[size]) if table in tags else b""
        for offset, info, _ in RELA.iter_unpack(relocations):
            if info & 0xFFFFFFFF not in types:
                continue
            name_at = ctypes.c_uint32.from_address(tags[DT_SYMTAB] + (info >> 32) * SYM_BYTES).value
            if name_at in wanted:
                address = loaded.base + offset
                found.setdefault(wanted[name_at], []).append(Slot(address, address in loaded.relro))
    return found


def _spelled(strings: bytes, symbols: Iterable[str]) -> dict[int, str]:
    """Every place in a table of strings where one of these begins, if only as the end of a longer one."""
    found: dict[int, str] = {}
    for symbol in symbols:
        text = symbol.encode() + b"\0"
        at = strings.find(text)
        while at >= 0:
            found[at] = symbol
            at = strings.find(text, at + 1)
    return found


def library_of(address: int) -> str:
    """Path of the loaded library that `address` points into, links followed; "" when there is none."""

    class DlInfo(ctypes.Structure):
        _fields_: ClassVar = [
            ("path", ctypes.c_char_p),
            ("base", ctypes.c_void_p),
            ("symbol", ctypes.c_char_p),
            ("value", ctypes.c_void_p),
        ]

    info = DlInfo()
    if not ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(info)) or not info.path:
        return ""
    return os.path.realpath(os.fsdecode(info.path))


def _find(library: str) -> _Library | None:
    found: list[_Library] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_PhdrInfo), ctypes.c_size_t, ctypes.c_void_p)
    def visit(info: Any, _size: int, _data: int) -> int:
        entry: _PhdrInfo = info.contents
        if os.path.basename(os.fsdecode(entry.name or b"")) != library:
            return 0
        headers = {h.type: h for h in entry.phdr[: entry.phnum]}
        if PT_DYNAMIC in headers:
            found.append(
                _Library(entry.base, entry.base + headers[PT_DYNAMIC].vaddr, _sealed(entry.base, headers))
            )
        return 1

    ctypes.CDLL(None).dl_iterate_phdr(visit, None)
    return found[0] if found else None


def _sealed(base: int, headers: dict[int, _Phdr]) -> range:
    """Addresses that the loader made read-only after relocation: whole pages, so the end is rounded down."""
    relro = headers.get(PT_GNU_RELRO)
    if relro is None:
        return range(0)
    start = base + relro.vaddr
    return range(start & -mmap.PAGESIZE, (start + relro.memsz) & -mmap.PAGESIZE)


def _dynamic(library: _Library) -> Iterator[tuple[int, int]]:
    """Tag and value of each dynamic entry. Addresses come out absolute; glibc stores them so, musl not."""
    at = library.dynamic
    while (tag := ctypes.c_int64.from_address(at).value) != 0:
        value = ctypes.c_uint64.from_address(at + 8).value
        is_address = tag in (DT_STRTAB, DT_SYMTAB, DT_RELA, DT_JMPREL)
        yield tag, value + library.base if is_address and value < library.base else value
        at += 16


def _protect(address: int, protection: int) -> None:
    page = address & -mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), protection):
        raise OSError(ctypes.get_errno(), "the page of the import table cannot be made writable")
