"""Compiles the kernels, where there is a compiler: C columns, MLX's nodes over them, one extension module.

Run by the build hook (`hook.py`) whenever the project is installed, by `make` after a change of sources, and
by hand as `python runtime/cpu/native/building.py` (--strict: a warning of the compiler is an error). Imports
nothing of the project, since the hook runs where nothing is installed yet. What it needs in the environment:
nanobind, and MLX with its headers (the distributions in REQUIRES).

The extension is tied to one release of MLX, whose C++ has no stable interface: it is built for MLX_VERSION
and loaded beside no other (`runtime.cpu.native.loading`). What came out is said in a report beside it, one
entry for each Python, since several may share a checkout.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zlib
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "src"
OBJECTS = HERE.parents[2] / "build" / "kernels"
SUFFIX: str = sysconfig.get_config_var("EXT_SUFFIX")
"""Of extension modules of this Python, such as .cpython-311-x86_64-linux-gnu.so."""
FILE = f"_kernels{SUFFIX}"
REPORT = "built.json"
"""{SUFFIX: {"mlx": version, "failed": reason or null, "remedy": what to do, or null, "crc32": of FILE}}"""

MLX_VERSION = "0.32.4"
REQUIRES = ("nanobind==3.1.0", f"mlx-cpu=={MLX_VERSION}", f"mlx=={MLX_VERSION}")
"""nanobind's own tag must be that of MLX's module, or arrays of one are unknown to the other."""

COLUMNS = {
    "x86_64": {
        "plain": ["-DMK_NO_SIMD", "-O2"],
        "avx2": ["-mavx2", "-mfma", "-mf16c"],
        "avxvnni": ["-mavx2", "-mfma", "-mf16c", "-mavxvnni"],
        "avx512": [
            "-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq",
            "-mavx512vnni", "-mprefer-vector-width=512",
        ],
    },
    "aarch64": {
        "plain": ["-DMK_NO_SIMD", "-O2"],
        "neon": [],
        # GCC's first scheduling loads so early that registers spill: up to 1.9 times the instructions.
        "dotprod": ["-march=armv8.2-a+dotprod", "-fno-schedule-insns"],
        "i8mm": ["-march=armv8.2-a+dotprod+i8mm", "-fno-schedule-insns"],
    },
}  # fmt: skip
INTEGER_COLUMNS = {"avxvnni", "dotprod", "i8mm"}
"""Columns of dot products of whole numbers alone (`simd/columns.h`); a compiler may not know them."""
BY_COLUMN = re.compile(rb"^const struct \w+ (INTEGER_)?COLUMN\(", re.MULTILINE)
"""What is in the files that are compiled once per column; every other .c file is compiled once."""

_INCLUDED = re.compile(r'^#include "([^"]+)"', re.MULTILINE)

C_FLAGS = [
    "-O3",
    "-std=gnu11",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    # Else a change of another file moves kernels by 16 bytes, and some are 1.35 times as slow there.
    "-falign-functions=64",
    "-Wall",
    "-Wextra",
]
CXX_FLAGS = ["-O2", "-std=c++20", "-fPIC", "-fvisibility=hidden", "-DNB_DOMAIN=mlx", "-DNDEBUG"]
CXX_WARNINGS = ["-Wall", "-Wextra", "-Wno-unused-parameter"]
OLD_S = 30 * 86400  # objects that no build has used for so long are removed

AGAIN = (
    "install a C and a C++ compiler and the headers of Python (Debian: g++ python3-dev), then modelkit again"
)


class CannotBuild(Exception):
    """Why there will be no kernels, a clause for a note to the user; what helps; what a compiler said."""

    def __init__(self, reason: str, remedy: str | None = None, said: str = "") -> None:
        super().__init__(f"{reason}\n{said}" if said else reason)
        self.reason, self.remedy = reason, remedy


@dataclass(frozen=True, slots=True)
class Tools:
    """What compiles."""

    c: list[str]
    cxx: list[str]
    include: list[str]
    """Flags for C++: headers of Python, nanobind and MLX."""
    nanobind: Path
    """The source that nanobind is compiled from."""
    libraries: Path
    """The folder with libmlx."""
    c_identity: str
    """Of the compiler and its machine, wherever it lies: the same for the same release."""
    cxx_identity: str
    """Of the compiler and of all headers: those of Python and MLX are in no file of C."""
    without: tuple[str, ...] = ()
    """Columns that the C compiler does not know."""


def refusal() -> CannotBuild | None:
    """Why nothing can be compiled here, as far as that is known before anything is installed for it."""
    if sys.platform != "linux":
        return CannotBuild("MLX has kernels of its own on this platform")
    if platform.machine() not in COLUMNS:
        return CannotBuild(f"there are no kernels for {platform.machine()}")
    if platform.libc_ver()[0] != "glibc":
        return CannotBuild("MLX's processor build needs glibc, which this system does not have")
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return CannotBuild("the headers of Python were not found", AGAIN)
    try:
        compilers()
    except CannotBuild as error:
        return error
    return None


def compilers() -> tuple[list[str], list[str]]:
    """Of C and C++: what CC and CXX name, else the first known one on the path. CannotBuild."""
    found: list[list[str]] = []
    for variable, names in (("CC", ("cc", "gcc", "clang")), ("CXX", ("c++", "g++", "clang++"))):
        given = os.environ.get(variable, "").split()
        if given and shutil.which(given[0]) is None:
            raise CannotBuild(f"{variable} names {given[0]}, which was not found", AGAIN)
        name = given[0] if given else next((name for name in names if shutil.which(name)), None)
        if name is None:
            raise CannotBuild(f"no {'C++' if variable == 'CXX' else 'C'} compiler was found", AGAIN)
        found.append(given or [name])
    return found[0], found[1]


def tools() -> Tools:
    refused = refusal()
    if refused is not None:
        raise refused
    c, cxx = compilers()
    versions = [_version(name) for name in ("mlx", "mlx-cpu", "nanobind")]
    if versions[0] != MLX_VERSION:
        raise CannotBuild(
            f"they are made for MLX {MLX_VERSION}, and {versions[0]} is installed",
            f"pip install 'mlx[cpu]=={MLX_VERSION}'",
        )
    import nanobind

    spec = importlib.util.find_spec("mlx")
    folders = [Path(folder) for folder in (spec.submodule_search_locations if spec else None) or ()]
    mlx = next((folder for folder in folders if (folder / "include" / "mlx" / "array.h").is_file()), None)
    if mlx is None:
        raise CannotBuild("the headers of MLX were not found", f"pip install 'mlx[cpu]=={MLX_VERSION}'")
    source = Path(nanobind.source_dir())
    parts = [sysconfig.get_path("include"), nanobind.include_dir(), source.parent / "ext/robin_map/include"]
    include = [f"-isystem{part}" for part in (*parts, mlx / "include")]  # their warnings are not ours
    c_said, cxx_said = _answer([*c, "--version"]), _answer([*cxx, "--version"])
    identities = "\0".join((platform.machine(), c_said)), "\0".join((SUFFIX, *versions, cxx_said))
    return Tools(c, cxx, include, source / "nb_combined.cpp", mlx / "lib", *identities, left_out(c))


def left_out(c: list[str], machine: str = platform.machine()) -> tuple[str, ...]:
    """Columns whose instructions a C compiler or its assembler does not know."""
    columns = COLUMNS[machine].items()
    return tuple(name for name, flags in columns if name in INTEGER_COLUMNS and not _knows(c, flags))


def _knows(c: list[str], flags: list[str]) -> bool:
    command = [*c, *flags, "-x", "c", "-c", "-", "-o", os.devnull]
    return not subprocess.run(command, input=b"", capture_output=True, check=False).returncode


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise CannotBuild(
            f"{name} is not installed where the project was built", f"pip install {' '.join(REQUIRES)}"
        ) from None


def steps(found: Tools, *, strict: bool = False) -> Iterator[tuple[list[str], Path]]:
    """(command but for its output and folders of headers, source) of every object."""
    c_flags = [*C_FLAGS, *denials(found.without), *(["-Werror"] if strict else [])]
    cxx_flags = [*CXX_WARNINGS, "-Werror"] if strict else CXX_WARNINGS
    for source in sorted(SOURCES.rglob("*.c")):
        for flags in of_columns(source, without=found.without):
            yield [*found.c, *c_flags, *flags], source
    yield [*found.cxx, *CXX_FLAGS, "-w"], found.nanobind
    for source in sorted(SOURCES.rglob("*.cpp")):
        yield [*found.cxx, *CXX_FLAGS, *cxx_flags], source


def denials(without: Sequence[str]) -> list[str]:
    """What tells every C file that there are no such columns (`simd/columns.h`)."""
    return [f"-DMK_NO_{name.upper()}" for name in without]


def of_columns(
    source: Path, machine: str = platform.machine(), without: Sequence[str] = ()
) -> list[list[str]]:
    """Flags of each column that a C file is compiled for: none, once, where it has no table."""
    table = BY_COLUMN.search(source.read_bytes())
    if table is None:
        return [[]]
    columns = COLUMNS[machine].items()
    others = without if table[1] else INTEGER_COLUMNS
    its = [(name, flags) for name, flags in columns if name not in others]
    return [[*flags, f"-DMK_COLUMN={name}"] for name, flags in its]


def build(folder: Path = HERE, *, say: bool = False, strict: bool = False) -> Path:
    """Compile what has changed and link it into `folder`. Returns the extension. CannotBuild."""
    found = tools()
    if say and found.without:
        print("without", *found.without, "(the compiler does not know it)")
    try:
        with _objects() as objects, ThreadPoolExecutor(os.cpu_count()) as several:
            work = [(step, found, objects, say) for step in steps(found, strict=strict)]
            made = list(several.map(lambda each: _compile(*each), work))
            target = folder / FILE
            new = target.with_name(f"{FILE}.{token_hex(8)}.new")
            _run([*found.cxx, "-shared", "-o", new, *made, f"-L{found.libraries}", "-lmlx", "-lpthread"])
            new.replace(target)  # a process that runs the old one keeps it
            return target
    except OSError as error:
        raise CannotBuild(f"they could not be compiled: {error}") from error


@contextmanager
def _objects() -> Generator[Path]:
    """A folder for what is compiled: in the checkout, where the next build finds it; else a temporary one."""
    with suppress(OSError):
        OBJECTS.mkdir(parents=True, exist_ok=True)
    if not os.access(OBJECTS, os.W_OK):
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
        return
    yield OBJECTS
    for old in OBJECTS.iterdir():
        with suppress(OSError):  # what another build has just given its name is there no more
            if time.time() - old.stat().st_mtime > OLD_S:
                old.unlink()


def _headers(source: Path) -> list[Path]:
    """Those of our own that it includes, and that these include."""
    found: set[Path] = set()
    waiting = [source]
    while waiting:
        included = {SOURCES / name for name in _INCLUDED.findall(waiting.pop().read_text())}
        waiting += (new := {path for path in included if path.is_file()} - found)
        found |= new
    return sorted(found)


def _compile(step: tuple[list[str], Path], found: Tools, objects: Path, say: bool) -> Path:
    """The object of one step, made unless it is there already."""
    command, source = step
    headers = _headers(source) if source.is_relative_to(SOURCES) else []
    identity = found.cxx_identity if source.suffix == ".cpp" else found.c_identity
    parts = [*command, identity, *(path.read_text() for path in (*headers, source))]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    target = objects / f"{source.parent.name}-{source.stem}-{key}.o"
    if target.is_file():
        target.touch()
        return target
    if say:
        column = (flag for flag in command if flag.startswith("-DMK_COLUMN"))
        print("compiling", f"{source.parent.name}/{source.name}", *column)
    made = target.with_suffix(f".{token_hex(8)}.part")
    include = [f"-I{SOURCES}", *(found.include if source.suffix == ".cpp" else [])]
    _run([*command, *include, "-c", source, "-o", made])
    made.replace(target)
    return target


def _run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        where = Path(command[0]).name
        reason = f"the compiler ({where}) refused: {_first_error(done.stderr)}"
        raise CannotBuild(
            reason, "try a newer compiler (CC, CXX); `pip install -v` shows all it says", done.stderr
        )
    if done.stderr:
        print(done.stderr, file=sys.stderr)


def _first_error(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "it said nothing")[:300]


def _answer(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def report(error: CannotBuild | None, folder: Path = HERE) -> Path:
    """Write into `folder` whether there are kernels for this Python and why not. Returns the file."""
    path = folder / REPORT
    try:
        entries = json.loads(path.read_text())
    except (OSError, ValueError):
        entries = {}
    failed, remedy = (error.reason, error.remedy) if error else (None, None)
    checksum = None if error else f"{zlib.crc32((folder / FILE).read_bytes()):08x}"
    entries[SUFFIX] = {"mlx": MLX_VERSION, "failed": failed, "remedy": remedy, "crc32": checksum}
    entries = {name: entry for name, entry in entries.items() if isinstance(entry, dict)}
    path.write_text(json.dumps(entries, indent=1) + "\n")
    return path


def main() -> None:
    """Build in place. Ends with 1 where that cannot be; the report then says why."""
    try:
        made = build(say=True, strict="--strict" in sys.argv[1:])
    except CannotBuild as error:
        (HERE / FILE).unlink(missing_ok=True)  # nobody knows which sources it was made of
        report(error)
        sys.exit(f"no kernels: {error}\n{error.remedy or ''}".rstrip())
    report(None)
    print("built", made)


if __name__ == "__main__":
    main()
