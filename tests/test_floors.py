"""Imports point down the floors of docs/design.md, never up and never sideways where rooms are kept apart;
and the server, which imports its rooms by their names, finds them all.
"""

import ast
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

ROOT = Path(__file__).resolve().parents[1]

# From the ground up; a file may import from its own room and from any floor below. Rooms on one floor
# may import each other only where the row says so.
FLOORS: list[tuple[bool, tuple[str, ...]]] = [
    (
        True,
        (
            "runtime.errors",
            "runtime.quoting",
            "runtime.records",
            "runtime.forks",
            "runtime.host",
            "runtime.step",
            "runtime.parts",
            "runtime.quant",
            "runtime.blocks",
            "runtime.cache.layout",
            "runtime.cache.snapshot",
            "runtime.cache.codec",
            "runtime.cache.lanes",
            "runtime.cache.protocol",
            "runtime.ranks.timeouts",
            "runtime.ranks.group",
            "runtime.ranks.lane",
            "runtime.ranks.links",
            "runtime.ranks.ring",
        ),
    ),
    (True, ("runtime.cache", "runtime.weights", "runtime.cpu")),
    (True, ("runtime.nn.scans",)),
    (True, ("runtime.nn.operations", "runtime.device", "runtime.streams")),
    (True, ("runtime.nn",)),
    (False, ("runtime.nn.positions", "runtime.nn.residual")),
    (False, ("runtime.nn.attention", "runtime.nn.feed_forward")),
    (True, ("runtime.nn.recurrent",)),
    (True, ("runtime.nn.weights",)),
    (True, ("runtime.nn.adapters",)),
    (False, ("runtime.config", "runtime.sampling")),
    (False, ("runtime.tensors",)),
    (False, ("runtime.trunks",)),
    (False, ("runtime.models.family",)),
    (True, ("runtime.models", "runtime.models.registry")),
    (
        True,
        (
            "runtime.loading",
            "runtime.loaded",
            "runtime.embedding",
            "runtime.ranks",
        ),
    ),
    (True, ("runtime.speculate", "runtime.quality")),
    (True, ("runtime.engine",)),
    (
        True,
        (
            "modelkit.errors",
            "modelkit.settings",
            "modelkit.gc_pause",
            "modelkit.temporary",
            "modelkit.units",
            "modelkit.durations",
            "modelkit.arguments",
            "modelkit.progress",
            "modelkit.problems",
            "modelkit.text_files",
            "modelkit.bound",
            "modelkit.faults",
            "modelkit.interest",
            "modelkit.json_text",
            "modelkit.python_faults",
            "modelkit.disk_faults",
            "modelkit.words",
            "modelkit.address",
            "modelkit.file_names",
            "modelkit.regexes",
        ),
    ),
    (False, ("modelkit.source", "modelkit.store", "modelkit.modelfile", "modelkit.tokenizer")),
    (True, ("modelkit.fetch",)),
    (True, ("modelkit.pack", "modelkit.chat")),
    (
        True,
        (
            "modelkit.memory",
            "modelkit.prefixes",
            "modelkit.learned",
            "modelkit.schema",
            "modelkit.output",
        ),
    ),
    (False, ("modelkit.answers", "modelkit.grammars")),
    (True, ("modelkit.grammars.patterns",)),
    (True, ("modelkit.grammars.rules",)),
    (True, ("modelkit.grammars.schemas",)),
    (True, ("modelkit.grammars.rewriting",)),
    (True, ("modelkit.grammars.notations",)),
    (True, ("modelkit.grammars.calls",)),
    (True, ("modelkit.grammars.answers",)),
    (True, ("modelkit.grammars.compiling",)),
    (True, ("modelkit.requests",)),
    (True, ("modelkit.opening", "modelkit.ranks")),
    (True, ("modelkit.loaded",)),
    (True, ("modelkit.model",)),
    (
        True,
        (
            "modelkit.verbs",
            "modelkit.load_options",
            "modelkit.async_model",
            "modelkit.packages",
            "modelkit.comparing",
            "modelkit.showing",
            "modelkit.client",
        ),
    ),
    (True, ("modelkit.server",)),
    (False, ("modelkit.server.anthropic", "modelkit.server.ollama", "modelkit.server.openai")),
    (True, ("modelkit.server.own",)),
    (True, ("modelkit.cli",)),
]

# Rooms of many files that others know by one name each.
DOORS = {"modelkit.chat.guarded": {"GuardedTemplate"}}


def _room(module: str) -> tuple[int, str] | None:
    """(floor, room) of a dotted module; the most specific room wins."""
    found: tuple[int, str] | None = None
    for floor, (_, rooms) in enumerate(FLOORS):
        for room in rooms:
            if (module == room or module.startswith(room + ".")) and (
                found is None or len(room) > len(found[1])
            ):
                found = (floor, room)
    return found


@cache
def _modules() -> dict[str, Path]:
    files = [*ROOT.glob("modelkit/**/*.py"), *ROOT.glob("runtime/**/*.py")]
    return {".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): f for f in files}


@dataclass(frozen=True)
class Read:
    """What the tests below ask about a file, found by going over it once."""

    imports: frozenset[str]
    """Every module that it imports, type-checking blocks left out: those are no dependency."""
    brought: tuple[tuple[str, tuple[str, ...]], ...]
    """(module, names) of each `from module import names`."""
    names: frozenset[str]
    """What it makes, at its top level and below."""
    words: frozenset[str]
    """Its texts."""
    says: bool
    """Has it a docstring, or nothing in it?"""
    explained_above: tuple[str, ...]
    """Fields that the docstring of their class explains."""


@cache
def _read(path: Path) -> Read:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    imports, names, words = set[str](), set[str](), set[str]()
    brought: list[tuple[str, tuple[str, ...]]] = []
    above: list[str] = []
    left: list[tuple[ast.AST, bool]] = [(tree, True)]
    while left:
        node, runs = left.pop()
        runs = runs and not (isinstance(node, ast.If) and ast.unparse(node.test) in _CHECKING)
        left += ((child, runs) for child in ast.iter_child_nodes(node))
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                words.add(node.value)
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
            if runs:
                imports.update(_imported(node))
            if isinstance(node, ast.ImportFrom):
                brought.append((node.module or "", tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
            if isinstance(node, ast.ClassDef):
                above += _explained_above(node)
    says = not source.strip() or ast.get_docstring(tree) is not None
    return Read(frozenset(imports), tuple(brought), frozenset(names), frozenset(words), says, tuple(above))


_CHECKING = ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and node.level:
        yield "relative import"
    else:
        before = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        yield from (f"{before}{alias.name}" for alias in node.names)


def _explained_above(node: ast.ClassDef) -> Iterator[str]:
    said = ast.get_docstring(node) or ""
    for field in node.body if said else ():
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            name = field.target.id
            if re.search(rf"(^|\s|`){name}`?(:|, \w+:| and \w+:) ", said):
                yield f"{node.name}.{name}"


def _imports(path: Path) -> frozenset[str]:
    return _read(path).imports


def test_imports_point_down() -> None:
    """Of all files in one test, as each of the next: a test for every file takes as long as reading it."""
    wrong = {module: tuple(_misplaced(module)) for module in _modules()}
    assert {module: said for module, said in wrong.items() if said} == {}


def _misplaced(module: str) -> Iterator[str]:
    here = _room(module)
    if here is None:
        if module not in ("modelkit", "runtime", "runtime.cache", "modelkit.__main__"):
            yield "stands on no floor"
        return
    for imported in _imports(_modules()[module]):
        if imported == "relative import":
            yield "uses a relative import"
        there = _room(imported)
        if there is None or there[1] == here[1]:
            continue
        if there[0] > here[0]:
            yield f"imports {imported}, which stands on a higher floor"
        elif there[0] == here[0] and not FLOORS[here[0]][0]:
            yield f"imports {imported}: these rooms are kept apart"


@pytest.mark.parametrize("room", DOORS)
def test_a_room_is_entered_by_its_door(room: str) -> None:
    doors = {room, *(f"{room}.{name}" for name in DOORS[room])}
    for module, path in _modules().items():
        if module != room and not module.startswith(room + "."):
            entered = {name for name in _imports(path) if name == room or name.startswith(room + ".")}
            assert entered <= doors, f"{module} imports {entered - doors}"
    assert room in _modules(), f"{room} is not there"


def test_runtime_never_imports_modelkit() -> None:
    for module, path in _modules().items():
        if module.startswith("runtime"):
            assert not any(name.split(".")[0] == "modelkit" for name in _imports(path)), module


STANDALONE = {"runtime.records", "runtime.cpu.native.building"}


def test_data_classes_are_records() -> None:
    """The standard library's decorator takes 0.4 ms a class, and every start would pay it for hundreds."""
    for module, path in _modules().items():
        assert module in STANDALONE or "dataclasses.dataclass" not in _imports(path), module


def test_every_module_says_what_it_is_for() -> None:
    for module, path in _modules().items():
        assert _read(path).says, f"{module} has no docstring"


def test_one_file_knows_where_a_wrapper_keeps_its_text_model() -> None:
    from runtime.config.text import TEXT_BLOCKS

    found = {module for module, path in _modules().items() if not _read(path).words.isdisjoint(TEXT_BLOCKS)}
    assert found == {"runtime.config.text"}


def _of_families() -> set[str]:
    """The modules of single families, their configs' and those of a family's room included."""
    from runtime.models import ARCHITECTURES

    families = {f"runtime.models.{module}" for module in ARCHITECTURES.values()}
    rooms = {module for module in _modules() if module.rpartition(".")[0] in families}
    return families | rooms | {f"{module}_config" for module in families}


def test_a_field_is_explained_under_it() -> None:
    above = {module: _read(path).explained_above for module, path in _modules().items()}
    assert {module: fields for module, fields in above.items() if fields} == {}


@pytest.mark.parametrize("path", sorted(ROOT.glob("benchmarks/*.py")), ids=lambda path: path.name)
def test_a_benchmark_imports_what_is_there(path: Path) -> None:
    modules = _modules()
    for module, names in _read(path).brought:
        if module.split(".")[0] in ("modelkit", "runtime"):
            assert module in modules, f"{path.name} imports {module}"
            missing = {name for name in names if f"{module}.{name}" not in modules}
            there = _read(modules[module]).names
            assert missing <= there, f"{path.name} imports {missing - there} of {module}"


# Tables about families, not of one: each says of many what other programs call things, or do with them.
ABOUT_FAMILIES = {
    "runtime.models.registry.names",
    "runtime.config.spellings",  # other names of config fields, needed before a family is found
    "modelkit.pack.planning.renamings",  # what tools from before transformers 5 call config fields
    "modelkit.pack.mlx_lm.limits",  # what mlx-lm computes otherwise
    "modelkit.pack.mlx_lm.fixes",  # and what is written for it then
    "modelkit.pack.mlx_lm.names",
    "modelkit.pack.mlx_lm.additions",
    "modelkit.pack.gguf.llama_cpp_limits",  # and llama.cpp
    "modelkit.pack.gguf.llama_cpp_conditions",
    "modelkit.source.bitnet",  # a way to store weights has its family's name
    "modelkit.source.foreign",
    "modelkit.source.gguf.vocabulary.pieces",  # kinds of vocabularies are called after their first model
    "modelkit.source.gguf.vocabulary.special",  # what tokens of one family take of the text behind them
    "modelkit.source.gguf.vocabulary.splitting",  # pre-tokenizers are called after their first model
    "modelkit.source.vocabularies.tiktoken",  # how each family's code cuts a text
    "runtime.config.mamba",  # "mamba" is a kind of layer there
    "modelkit.server.openai.thinking",  # "deepseek" is a form of answers to llama.cpp
}

# Here a table of another program's families is the room.
FAMILIES_ELSEWHERE = "modelkit.source.gguf.architectures."


def test_only_a_familys_own_files_speak_of_it() -> None:
    from runtime.models import ARCHITECTURES

    named = {module for module, path in _modules().items() if not _read(path).words.isdisjoint(ARCHITECTURES)}
    others = {module for module in named if not module.startswith(FAMILIES_ELSEWHERE)}
    assert others - _of_families() == ABOUT_FAMILIES


def _no_model(name: str) -> Any:
    raise AssertionError(f"nobody asked for {name}")


@pytest.fixture(scope="module")
def whole_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    from modelkit.server.app import make_app
    from modelkit.server.log import Log
    from modelkit.server.models.pool import Pool
    from modelkit.server.serving import Serving
    from modelkit.settings import Settings

    settings = Settings.from_environment({"MODELKIT_HOME": str(tmp_path_factory.mktemp("home"))})
    app = make_app(Serving(Pool(_no_model), settings, log=Log(io.StringIO())))
    with TestClient(app, base_url="http://localhost:11434") as client:
        yield client


def test_a_server_of_all_rooms_is_alive(whole_server: TestClient) -> None:
    answer = whole_server.get("/livez")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    ("path", "headers", "keys"),
    [
        ("/v1/none", {}, ["error"]),
        ("/v1/none", {"anthropic-version": "2023-06-01"}, ["type", "error", "request_id"]),
        ("/api/none", {}, ["error"]),
        ("/modelkit/v1/none", {}, ["error", "kind", "request_id"]),
        ("/none", {}, ["error"]),
    ],
)
def test_each_dialect_words_a_wrong_path(
    whole_server: TestClient, path: str, headers: dict[str, str], keys: list[str]
) -> None:
    answer = whole_server.post(path, json={}, headers=headers)
    assert (answer.status_code, list(answer.json())) == (404, keys)
    said = answer.json()["error"]
    assert "no such path" in (said if isinstance(said, str) else said["message"])


def test_every_room_of_the_server_is_in_its_table() -> None:
    from modelkit.server.app import ROOMS

    files = {module: path for module, path in _modules().items() if module.startswith("modelkit.server.")}
    assert {module for module, path in files.items() if "DIALECT" in _read(path).names} == set(ROOMS)
