"""What a type checker knows of the Python API, and that it is what holds."""

import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_type_hints

import pytest

import modelkit
from modelkit.load_options import LoadOptions
from modelkit.modelfile import PARAMETERS, Parameter
from modelkit.modelfile.keywords import LoadParameters, RequestParameters
from modelkit.requests.options import ChatOptions, GenerateOptions

ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_IMPORTED = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)

PROGRAM = """
import modelkit
from typing import assert_type

def use(flag: bool) -> None:
    with modelkit.load("island", num_ctx=2048, temperature=0.5, cache_memory="2GB") as model:
        assert_type(model.generate("Once", temperature=0, stop=["x"], format="json"), modelkit.Generation)
        assert_type(model.generate([1, 2], stream=True, seed=3), modelkit.GenerationStream)
        assert_type(model.generate("a", stream=flag), modelkit.Generation | modelkit.GenerationStream)
        assert_type(model.chat([{"role": "user", "content": "Hi"}], tools=None), modelkit.Generation)
        assert_type(model.chat([modelkit.Message("user", "Hi")], stream=True), modelkit.GenerationStream)
        for piece in model.generate("a", stream=True):
            assert_type(piece, str)
        model.generate("a", temprature=0.3)  # wrong
        model.generate("a", temperature="hot")  # wrong
        model.generate("a", num_ctx=5)  # wrong
        model.generate("a", stop=5)  # wrong
        model.generate(5)  # wrong
        model.generate("a", stream=True, raw="yes")  # wrong
        model.chat("Hi")  # wrong
        model.chat([{"role": "user", "content": "Hi"}], sed=1)  # wrong
    modelkit.load("island", temprature=0.3)  # wrong
    modelkit.load("island", kv_format="q5")  # wrong
    modelkit.load(5)  # wrong
    modelkit.create("Modelfile", quantise="q4")  # wrong
    print(modelkit.AsyncModel.load("island", temprature=0.3))  # wrong
    print(modelkit.AsyncModel.load("island", ranks="two"))  # wrong
    print(modelkit.AsyncModel.load("island", num_ctx=512, cache_memory="2GB"))
    assert_type(modelkit.create("Modelfile"), modelkit.Created)
    assert_type(modelkit.remove("island"), modelkit.Freed)
    for package in modelkit.list():
        print(package.name)
"""


def of_the_pages() -> dict[str, str]:
    """Whole programs that users read first, but for those of other libraries' clients."""
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs" / f"{page}.md" for page in ("tutorial", "recipes", "python")),
    ]
    return {
        f"{page.stem.lower()}_{place}.py": program
        for page in pages
        for place, program in enumerate(_PROGRAM.findall(page.read_text("utf-8")))
        if "import modelkit\n" in program and all(map(find_spec, _IMPORTED.findall(program)))
    }


def annotation(row: Parameter) -> Any:
    """The type of a keyword for this row of the table."""
    if row.kind == "choice":
        return bool | Literal[row.choices] if row.switches else Literal[row.choices]
    return {"int": int, "float": float, "word": str, "strings": str | Sequence[str]}[row.kind]


def test_the_keywords_are_the_parameter_table() -> None:
    of_requests = {
        n: annotation(row) for n, row in PARAMETERS.items() if row.scope in ("sampling", "generation")
    }
    assert get_type_hints(RequestParameters) == of_requests
    assert get_type_hints(LoadParameters) == {name: annotation(row) for name, row in PARAMETERS.items()}


@pytest.mark.parametrize(
    ("method", "options"), [(modelkit.Model.generate, GenerateOptions), (modelkit.Model.chat, ChatOptions)]
)
def test_the_options_that_checkers_see_are_the_arguments_that_are_there(
    method: Any, options: type[Mapping[str, Any]]
) -> None:
    arguments = inspect.signature(method).parameters.values()
    named = {one.name for one in arguments if one.kind is one.KEYWORD_ONLY}
    assert named - {"stream"} == get_type_hints(options).keys() - get_type_hints(RequestParameters).keys()


def test_an_event_loops_load_takes_what_load_takes() -> None:
    arguments = inspect.signature(modelkit.load).parameters.values()
    hints, own = get_type_hints(modelkit.load), get_type_hints(LoadOptions)
    named = {one.name: hints[one.name] for one in arguments if one.kind is one.KEYWORD_ONLY}
    assert own == named | get_type_hints(LoadParameters)


def test_the_page_names_the_arguments_that_there_are() -> None:
    """`create(modelfile, *, name, ...)` in docs/python.md, of every function and method."""
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    calls = dict(re.findall(r"`(\w+)\(([^`()]*(?:\(\))?[^`()]*)\)`", page))
    named, there = dict[str, set[str]](), dict[str, set[str]]()
    for name, given in calls.items():
        homes = (modelkit, modelkit.Model, modelkit.GenerationStream)
        found = [one for home in homes if callable(one := getattr(home, name, None))]
        for one in found[:1]:
            named[name] = {word.strip(" *").split("=")[0] for word in given.split(",")} - {"", "parameters"}
            there[name] = {*inspect.signature(one).parameters} - {"self", "parameters"}
    assert len(named) > 20
    assert named == there


def test_a_type_checker_finds_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    checker = shutil.which("basedpyright", path=str(Path(sys.executable).parent)) or shutil.which(
        "basedpyright"
    )
    if checker is None:
        pytest.skip("basedpyright is not installed")
    for name, text in {"program.py": PROGRAM, **of_the_pages()}.items():
        (tmp_path / name).write_text(text)
    config = {"include": ["*.py"], "extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    done = subprocess.run(
        [checker, "--outputjson", "--pythonpath", sys.executable, "--project", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    said = json.loads(done.stdout)["generalDiagnostics"]
    found = {(Path(one["file"]).name, one["range"]["start"]["line"]) for one in said}
    wrong = {line for line, text in enumerate(PROGRAM.splitlines()) if "# wrong" in text}
    assert found == {("program.py", line) for line in wrong}, done.stdout
