"""What a process that starts, or answers once, may not import: each of these is waited for every time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import modelkit
from tests.support.tiny import write_model

# Whole libraries, and rooms that only other models, other commands or other answers need.
EVER = (
    "asyncio",
    "email",
    "httpx2",
    "huggingface_hub",
    "importlib.metadata",
    "llguidance",
    "numpy",
    "ssl",
    "torch",
)
FOR_A_TEMPLATE = ("jinja2", "modelkit.chat.guarded")
FOR_OTHERS = (
    "gguf",
    "modelkit.chat.go.convert",
    "modelkit.cli",
    "modelkit.client",
    "modelkit.grammars.compiling.compiler",
    "modelkit.grammars.calls.tools",
    "modelkit.output.header_splitter",
    "modelkit.pack.build",
    "modelkit.pack.writing.transform",
    "modelkit.server",
    "modelkit.source.adapters.reading",
    "modelkit.source.vocabularies.tokenizer_file",
    "modelkit.answers.waker",
    "runtime.models.dflash_config",
    "runtime.models.mamba",
    "runtime.models.qwen3_5",
)
ANSWER = """
import os, sys, modelkit
model = modelkit.load("m", home=sys.argv[1])
assert model.generate("Hello", num_predict=3, temperature=0).ids
{more}
print(*sys.modules, flush=True)
model.close()
"""


def imported(code: str, *arguments: object) -> set[str]:
    """The modules that a process has after this."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    return set(ran.stdout.split())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    write_model(folder / "source")
    (folder / "Modelfile").write_text(f"FROM {folder / 'source'}\n")
    modelkit.create(folder / "Modelfile", name="m", home=folder / "home")
    return folder / "home"


def test_importing_modelkit_costs_next_to_nothing() -> None:
    there = imported("import sys, modelkit; print(*sys.modules)")
    assert not there & {*EVER, *FOR_A_TEMPLATE, *FOR_OTHERS, "mlx.core", "tokenizers", "click"}
    assert not [name for name in there if name.startswith("runtime")]
    assert len([name for name in there if name.startswith("modelkit")]) < 6


def test_a_command_answers_an_interrupt_before_it_imports_anything() -> None:
    """What Python would print of one until then is a traceback."""
    code = "import sys; before = {*sys.modules}; import modelkit.cli.start; print(*{*sys.modules} - before)"
    assert imported(code) == {"modelkit", "modelkit.cli", "modelkit.cli.early_exit", "modelkit.cli.start"}


AWAITED = """
import asyncio, builtins, sys, threading, modelkit

modelkit.AsyncModel
loaded, here = {*sys.modules}, []
class Seen:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is threading.main_thread():
            here.append(name)
sys.meta_path.insert(0, Seen())

async def ask():
    async with await modelkit.AsyncModel.load("m", home=sys.argv[1]) as model:
        await model.generate("Hello", num_predict=3)
        async for _ in await model.generate("Hello", num_predict=3, regex="[ab]*", stream=True):
            pass
        await model.chat([{"role": "user", "content": "Hi"}], num_predict=3, template="chatml")
        await model.embed("Hello")

asyncio.run(ask())
print(*loaded, *here)
"""


def test_an_event_loop_imports_nothing_that_takes_long(home: Path) -> None:
    """AsyncModel brought MLX with it, on the loop's thread: other coroutines stood for half a second."""
    there = imported(AWAITED, home)
    assert "modelkit.async_model" in there
    large = ("mlx", "numpy", "runtime.", "tokenizers")
    assert not [name for name in there if name.startswith(large)]
    assert not there & {"jinja2", "llguidance"}


def test_a_first_answer_imports_what_it_needs(home: Path) -> None:
    there = imported(ANSWER.format(more=""), home)
    assert not there & {*EVER, *FOR_A_TEMPLATE, *FOR_OTHERS}


def test_what_is_imported_late_is_imported_when_it_is_needed(home: Path) -> None:
    """Else the names above would bar nothing once a module is called otherwise."""
    more = """
import asyncio
async def read(): return [text async for text in model.generate("a", num_predict=2, stream=True)]
asyncio.run(read())
model.generate("a", num_predict=2, regex="[ab]*")
model.generate("a", num_predict=2, template="chatml")
"""
    there = imported(ANSWER.format(more=more), home)
    assert there >= {"asyncio", "llguidance", "numpy", *FOR_A_TEMPLATE, "modelkit.answers.waker"}
