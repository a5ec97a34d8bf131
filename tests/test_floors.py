"""Imports point down the floors of docs/design.md, never up and never sideways where rooms are kept apart;
and the server, which imports its rooms by their names, finds them all.
"""

import ast
import io
import re
from collections.abc import Iterator
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
            "runtime.records",
            "runtime.forks",
            "runtime.host",
            "runtime.step",
            "runtime.quant",
            "runtime.blocks",
            "runtime.cache.layout",
            "runtime.cache.snapshot",
            "runtime.cache.codec",
            "runtime.cache.lanes",
            "runtime.cache.protocol",
            "runtime.ranks.group",
            "runtime.ranks.lane",
            "runtime.ranks.links",
            "runtime.ranks.ring",
        ),
    ),
    (True, ("runtime.cache", "runtime.weights", "runtime.holding", "runtime.cpu")),
    (True, ("runtime.nn", "runtime.device", "runtime.streams")),
    (True, ("runtime.models", "runtime.sampling")),
    (True, ("runtime.loaded", "runtime.planned", "runtime.embedding", "runtime.ranks")),
    (True, ("runtime.speculate", "runtime.quality")),
    (True, ("runtime.engine",)),
    (
        True,
        (
            "modelkit.errors",
            "modelkit.settings",
            "modelkit.collecting",
            "modelkit.temporary",
            "modelkit.units",
            "modelkit.durations",
            "modelkit.arguments",
            "modelkit.bars",
            "modelkit.bound",
            "modelkit.faults",
            "modelkit.json_text",
            "modelkit.python_faults",
            "modelkit.words",
            "modelkit.address",
            "modelkit.portable",
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


@cache
def _imports(path: Path) -> set[str]:
    """Every module that a file imports, type-checking blocks left out: those are no dependency."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.add("relative import")
    return found


@pytest.mark.parametrize("module", sorted(_modules()))
def test_imports_point_down(module: str) -> None:
    here = _room(module)
    if here is None:
        assert module in ("modelkit", "runtime", "runtime.cache", "modelkit.__main__")
        return
    for imported in _imports(_modules()[module]):
        assert imported != "relative import", f"{module} uses a relative import"
        there = _room(imported)
        if there is None or there[1] == here[1]:
            continue
        assert there[0] <= here[0], f"{module} imports {imported}, which stands on a higher floor"
        if there[0] == here[0]:
            assert FLOORS[here[0]][0], f"{module} imports {imported}: these rooms are kept apart"


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
        source = path.read_text(encoding="utf-8")
        assert not source.strip() or ast.get_docstring(ast.parse(source)), f"{module} has no docstring"


def test_one_file_knows_where_a_wrapper_keeps_its_text_model() -> None:
    from runtime.models.wrapper import TEXT_BLOCKS

    found = {
        module
        for module, path in _modules().items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in TEXT_BLOCKS
    }
    assert found == {"runtime.models.wrapper"}


def _of_families() -> set[str]:
    """The modules of single families, their configs' included."""
    from runtime.models import ARCHITECTURES

    families = {f"runtime.models.{module}" for module in ARCHITECTURES.values()}
    return families | {f"{module}_config" for module in families}


EXPLAINED = sorted(one for one in _modules() if one.startswith(("modelkit.", "runtime.")))


@pytest.mark.parametrize("module", EXPLAINED)
def test_a_field_is_explained_under_it(module: str) -> None:
    for node in ast.walk(ast.parse(_modules()[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            said = ast.get_docstring(node) or ""
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    name = field.target.id
                    assert not re.search(rf"(^|\s|`){name}`?(:|, \w+:| and \w+:) ", said), (
                        f"{node.name}.{name}"
                    )


def _names(path: Path) -> set[str]:
    """What a file makes at its top level."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


@pytest.mark.parametrize("path", sorted(ROOT.glob("benchmarks/*.py")), ids=lambda path: path.name)
def test_a_benchmark_imports_what_is_there(path: Path) -> None:
    modules = _modules()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("modelkit", "runtime"):
            assert node.module in modules, f"{path.name} imports {node.module}"
            there = _names(modules[node.module])
            missing = [a.name for a in node.names if f"{node.module}.{a.name}" not in modules]
            assert set(missing) <= there, f"{path.name} imports {set(missing) - there} of {node.module}"


# Tables about families, not of one: each says of many what other programs call things, or do with them.
ABOUT_FAMILIES = {
    "runtime.models.names",
    "runtime.models.spellings",  # other names of config fields, needed before a family is found
    "modelkit.pack.planning.renamings",  # what tools from before transformers 5 call config fields
    "modelkit.pack.mlx_lm.limits",  # what mlx-lm computes otherwise
    "modelkit.pack.mlx_lm.mends",  # and what is written for it then
    "modelkit.pack.mlx_lm.names",
    "modelkit.pack.mlx_lm.added",
    "modelkit.pack.gguf.llama_cpp_limits",  # and llama.cpp
    "modelkit.source.bitnet",  # a way to store weights has its family's name
    "modelkit.source.foreign",
    "modelkit.source.gguf.vocabulary.pieces",  # kinds of vocabularies are called after their first model
    "modelkit.source.gguf.vocabulary.special",  # what tokens of one family take of the text behind them
    "modelkit.source.gguf.vocabulary.splitting",  # pre-tokenizers are called after their first model
    "modelkit.source.vocabularies.tiktoken",  # how each family's code cuts a text
    "runtime.models.mamba_fields",  # "mamba" is a kind of layer there
    "modelkit.server.openai.thinking",  # "deepseek" is a form of answers to llama.cpp
}

# Here a table of another program's families is the room.
FAMILIES_ELSEWHERE = "modelkit.source.gguf.architectures."


def test_only_a_familys_own_files_speak_of_it() -> None:
    from runtime.models import ARCHITECTURES

    named = {
        module
        for module, path in _modules().items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in ARCHITECTURES
    }
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
    assert {module for module, path in files.items() if "DIALECT" in _names(path)} == set(ROOMS)
