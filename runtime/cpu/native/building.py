"""Compiles the kernels, where there is a compiler: C columns, MLX's nodes over them, one extension module.

Run by the build hook (`hook.py`) whenever the project is installed, and by hand as
`python runtime/cpu/native/building.py` after a change of sources. Imports nothing of the project, since the
hook runs where nothing is installed yet. What it needs in the environment: nanobind, and MLX with its headers
(the distributions in REQUIRES).

The extension is tied to one release of MLX, whose C++ has no stable interface: it is built for MLX_VERSION
and loaded beside no other (`runtime.cpu.native`).
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "src"
OBJECTS = HERE.parents[2] / "build" / "kernels"
NAME = "_kernels"
REPORT = HERE / "built.json"
"""Whether and why not: {"mlx": version, "failed": sentence or null}."""

MLX_VERSION = "0.32.4"
REQUIRES = ("nanobind==3.1.0", f"mlx-cpu=={MLX_VERSION}", f"mlx=={MLX_VERSION}")
"""nanobind's own tag must be that of MLX's module, or arrays of one are unknown to the other."""

COLUMNS = {
    "x86_64": {
        "plain": ["-DMK_NO_SIMD"],
        "avx2": ["-mavx2", "-mfma", "-mf16c"],
        "avx512": [
            "-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq",
            "-mavx512vnni", "-mprefer-vector-width=512",
        ],
    },
    "aarch64": {"plain": ["-DMK_NO_SIMD"], "neon": []},
}  # fmt: skip
COLUMN_SOURCES = (
    "norms",
    "products",
    "scans_conv",
    "scans_delta",
    "scans_lru",
    "scans_norm",
    "scans_space",
)
"""Files that are compiled once per column; every other .c file is compiled once."""

C_FLAGS = [
    "-O3",
    "-std=gnu11",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-Wall",
    "-Wextra",
]
CXX_FLAGS = ["-O2", "-std=c++20", "-fPIC", "-fvisibility=hidden", "-DNB_DOMAIN=mlx", "-DNDEBUG"]


class CannotBuild(Exception):
    """Why there will be no kernels; a clause for a note to the user."""


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


def compilers() -> tuple[list[str], list[str]]:
    """Of C and C++: what CC and CXX name, else the first known one on the path. CannotBuild."""
    found: list[list[str]] = []
    for variable, names in (("CC", ("cc", "gcc", "clang")), ("CXX", ("c++", "g++", "clang++"))):
        given = os.environ.get(variable, "").split()
        name = given[0] if given else next((name for name in names if shutil.which(name)), None)
        if name is None or shutil.which(name) is None:
            raise CannotBuild(f"no {'C++' if variable == 'CXX' else 'C'} compiler was found")
        found.append(given or [name])
    return found[0], found[1]


def platform_refusal() -> str | None:
    """Why this platform has no use for kernels, or None."""
    if sys.platform != "linux":
        return "MLX has kernels of its own on this platform"
    if platform.machine() not in COLUMNS:
        return f"there are no kernels for {platform.machine()}"
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "the headers of Python were not found"
    return None


def tools() -> Tools:
    refusal = platform_refusal()
    if refusal is not None:
        raise CannotBuild(refusal)
    c, cxx = compilers()
    for module in ("nanobind", "mlx"):
        if importlib.util.find_spec(module) is None:
            raise CannotBuild(f"{module} is not installed where the project was built")
    version = importlib.metadata.version("mlx")
    if version != MLX_VERSION:
        raise CannotBuild(f"they are made for MLX {MLX_VERSION}, and {version} is installed")
    import nanobind

    spec = importlib.util.find_spec("mlx")
    assert spec is not None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    mlx = next((folder for folder in folders if (folder / "include" / "mlx" / "array.h").is_file()), None)
    if mlx is None:
        raise CannotBuild("the headers of MLX were not found")
    source = Path(nanobind.source_dir())
    parts = [sysconfig.get_path("include"), nanobind.include_dir(), source.parent / "ext/robin_map/include"]
    include = [f"-I{part}" for part in (*parts, mlx / "include")]
    return Tools(c, cxx, include, source / "nb_combined.cpp", mlx / "lib")


def steps(found: Tools) -> Iterator[tuple[list[str], Path]]:
    """(command but for its output, source) of every object."""
    columns = COLUMNS[platform.machine()]
    for source in sorted(SOURCES.glob("*.c")):
        if source.stem in COLUMN_SOURCES:
            for column, flags in columns.items():
                yield [*found.c, *C_FLAGS, *flags, f"-DMK_COLUMN={column}"], source
        else:
            yield [*found.c, *C_FLAGS], source
    for source in (*sorted(SOURCES.glob("*.cpp")), found.nanobind):
        flags = ["-w"] if source == found.nanobind else ["-Wall", "-Wextra", "-Wno-unused-parameter"]
        yield [*found.cxx, *CXX_FLAGS, *flags, *found.include], source


def build(folder: Path = HERE, *, say: bool = False) -> Path:
    """Compile what has changed and link it into `folder`. Returns the extension. CannotBuild."""
    found = tools()
    OBJECTS.mkdir(parents=True, exist_ok=True)
    headers = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.glob("*.h")))).hexdigest()
    with ThreadPoolExecutor(os.cpu_count()) as several:
        objects = list(several.map(lambda step: _compile(step[0], step[1], headers, say=say), steps(found)))
    target = folder / f"{NAME}{sysconfig.get_config_var('EXT_SUFFIX')}"
    made = target.with_name(f"{target.name}.new")
    link = [
        *found.cxx,
        "-shared",
        "-o",
        str(made),
        *map(str, objects),
        f"-L{found.libraries}",
        "-lmlx",
        "-lpthread",
    ]
    _run(link)
    made.replace(target)  # a process that runs the old one keeps it
    return target


def _compile(command: Sequence[str], source: Path, headers: str, *, say: bool) -> Path:
    key = hashlib.sha256("\0".join((*command, headers)).encode() + source.read_bytes()).hexdigest()[:16]
    target = OBJECTS / f"{source.stem}-{key}.o"
    if not target.is_file():
        if say:
            print("compiling", source.name, *(flag for flag in command if flag.startswith("-DMK_COLUMN")))
        for old in OBJECTS.glob(f"{source.stem}-{key}.*.part"):
            old.unlink(missing_ok=True)
        made = target.with_suffix(f".{os.getpid()}.part")
        _run([*command, "-c", str(source), "-o", str(made)])
        made.replace(target)
    return target


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuild(f"the compiler refused: {' '.join(command)}\n{done.stderr[-4000:]}")
    if done.stderr:
        print(done.stderr, file=sys.stderr)


def remove() -> None:
    """Take away what an earlier build left: nobody knows which sources it was made of."""
    for old in HERE.glob(f"{NAME}.*"):
        old.unlink()


def report(failed: str | None) -> None:
    REPORT.write_text(json.dumps({"mlx": MLX_VERSION, "failed": failed}) + "\n")


if __name__ == "__main__":
    try:
        print("built", build(say=True))
        report(None)
    except CannotBuild as error:
        sys.exit(f"no kernels: {error}")
