"""Whatever is handed to the Python API, what comes out is a value, or a ModelkitError that says where, what
and what was expected.
"""

import datetime
import fractions
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import modelkit
from modelkit.errors import ModelkitError, ParameterError, RequestError
from tests.support.tiny import TEMPLATE, write_model

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one package, beside its source and its Modelfile."""
    home = tmp_path_factory.mktemp("boundary")
    write_model(home / "model", template=TEMPLATE)
    (home / "Modelfile").write_text(f"FROM {home / 'model'}\n")
    modelkit.create(home / "Modelfile", name="story", home=home)
    return home


@pytest.fixture(scope="module")
def model(home: Path) -> Iterator[modelkit.Model]:
    with modelkit.load("story", home=home) as loaded:
        yield loaded


class Odd:
    """Nobody expects it; its own code must not be called for a message."""

    def __repr__(self) -> str:
        raise AssertionError("repr was called")

    __str__ = __repr__


class Text(str):
    __slots__ = ()


def _ring() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


LEAVES: list[Any] = [
    *(None, True, False, 0, 1, -1, 5, 300, 2**31, 2**64, -(2**80), 10**5000),
    *(0.5, -0.0, 1e400, float("nan"), 3j, np.int64(3), np.float32(1)),
    *("", "x", "Hi there", "a\0b", "\ud800", "json", "{", "q4", "./x", "é" * 3, Text("x"), "x" * 5000, "/"),
    *(b"", b"x", bytearray(b"x"), memoryview(b"xy"), np.array([1, 2]), np.array("x")),
    *(range(3), object(), Odd(), Odd, int, len, Ellipsis, NotImplemented, fractions.Fraction(1, 2)),
    *(datetime.date(2020, 1, 1), Path("x"), Path("a\0b"), types.MappingProxyType({"a": 1}), _ring()),
    *(USER, TOOL, {"role": Odd()}, {"role": "user", "content": 5}, {"role": "tool"}, {1: 2}, {"a": Odd()}),
    {"role": "assistant", "tool_calls": [{"function": {"name": 5}}]},
    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": {1}}}}]},
    {"role": "user", "content": [{"type": "text", "text": Odd()}]},
    modelkit.Message("user", "Hi"),
    modelkit.ToolCall("f", {}),
]
THINGS = st.recursive(
    st.integers(0, len(LEAVES) - 1).map(lambda place: LEAVES[place]),  # some of them cannot be printed
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.sampled_from(["a", "role", "content", "type", 1, ()]), inner, max_size=3)
        | st.lists(inner, max_size=2).map(iter)
    ),
    max_leaves=4,
)

# Every public function with arguments that are right, all but one of which stay so. Of parameters, some.
SOME = ("temperature", "seed", "stop", "draft_acceptance", "temprature")
FORMS = ("format", "grammar", "regex", "top_logprobs", "logit_bias", "adapters", "context_length", "template")
ANSWER: dict[str, Any] = {"num_predict": 2, "stream": False, **dict.fromkeys((*FORMS, *SOME))}
TALK: dict[str, Any] = {"messages": [USER], "tools": None, "variables": None}
HOME = {"home": None}
CALLS: dict[str, dict[str, Any]] = {
    "model.generate": {"prompt": "Hi", "raw": False, **ANSWER},
    "model.chat": {
        **TALK,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "truncate": True,
        "continue_final": False,
        **ANSWER,
    },
    "model.prompt": {
        **TALK,
        "truncate": True,
        "think": None,
        "continue_final": False,
        "template": None,
    },
    "model.logits": {"ids": [1, 2], "source": (), "chunk": None, "adapters": None},
    "model.encode": {"text": "Hi", "add_special": True},
    "model.decode": {"ids": [1, 2], "skip_special": True},
    "model.infill": {"before": "a", "behind": "b"},
    "model.token_bytes": {"id": 1},
    "model.prefixes": {},
    "model.limit_prefixes": {"limit_bytes": 1 << 20},
    "model.limit_layers": {"limit_bytes": 1 << 30},
    "model.embed": {
        "texts": ["Hi"],
        "dimensions": 4,
        "truncate": True,
        "normalize": True,
        "prompt_name": None,
        "adapters": [],
    },
    "modelkit.load": {
        "name": "story",
        "cache_memory": 0,
        "cache_disk": 0,
        "max_waiting": 8,
        "adapters": (),
        "on_memory": None,
        "on_weights": None,
        "ranks": None,
        "shards": None,
        **HOME,
        **dict.fromkeys((*SOME, "num_ctx", "kv_format")),
    },
    "modelkit.create": {
        "modelfile": "Modelfile",
        "name": "copy",
        **dict.fromkeys(("quantize", "quantize_draft", "progress")),
        "offline": True,
        "plain": False,
        "fuse_adapters": False,
        **HOME,
    },
    "modelkit.pull": {
        "address": "ollama:there-is-no-such-model",
        **dict.fromkeys(("name", "quantize", "progress")),
        "offline": True,
        "insecure": False,
        "outline": False,
        **HOME,
    },
    "modelkit.push": {
        "name": "story",
        "address": "oci://127.0.0.1:1/there/is:none",
        "insecure": False,
        "progress": None,
        **HOME,
    },
    "modelkit.compare": {"a": "story", "b": "story", "text": "Hi there", "speed": False, **HOME},
    "modelkit.compare_embeddings": {
        "a": "story",
        "b": "story",
        "texts": ["one", "two", "three"],
        "speed": False,
        **HOME,
    },
    "modelkit.list": {"prefix": "", **HOME},
    "modelkit.copy": {"source": "story", "target": "other", **HOME},
    "modelkit.remove": {"name": "other", **HOME},
    "modelkit.export": {"name": "story", "folder": "out", "form": None, "copy": False, **HOME},
    "modelkit.export_adapter": {"name": "story", "adapter": "law", "folder": "law", "form": "peft", **HOME},
    "modelkit.export_gguf": {"name": "story", "file": "out.gguf", "draft": False, **HOME},
    "modelkit.Modelfile": {"directives": (modelkit.Directive("FROM", "./model"),), "file": "Modelfile"},
    "modelkit.Modelfile.parse": {"text": "FROM ./model\n", "file": "Modelfile"},
    "modelkit.Modelfile.read": {"path": "Modelfile"},
    "modelkit.Directive": {"keyword": "PARAMETER", "value": "0.5", "name": "temperature"},
    "modelkit.Message": {
        "role": "user",
        "content": "Hi",
        "tool_calls": (),
        **dict.fromkeys(("thinking", "name", "tool_call_id")),
    },
    "modelkit.ToolCall": {"name": "f", "arguments": {}, "id": None, "written": None},
}
ARGUMENTS = [(call, name) for call, arguments in CALLS.items() for name in arguments]


@pytest.mark.parametrize(("call", "argument"), ARGUMENTS, ids=[f"{c}({a})" for c, a in ARGUMENTS])
def test_whatever_an_argument_is_only_our_errors_come_out(
    home: Path, model: modelkit.Model, monkeypatch: pytest.MonkeyPatch, call: str, argument: str
) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("MODELKIT_HOME", str(home))
    start: Any = model if call.startswith("model.") else modelkit
    function = functools.reduce(getattr, call.split(".")[1:], start)
    right = {name: value for name, value in CALLS[call].items() if value is not None or name not in SOME}

    def throw(thing: object) -> None:
        said = _error(lambda: _use(function(**{**right, argument: thing})))
        assert said is None or 0 < len(said) < 2000

    for thing in (*LEAVES, (LEAVES[11],), [LEAVES[11]], {"a": LEAVES[11]}, {LEAVES[11]: 1}):
        throw(thing)
    made = settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    made(given(thing=THINGS)(throw))()


def _error(act: Callable[[], None]) -> str | None:
    try:
        act()
    except ModelkitError as error:
        return str(error)
    return None


def _use(result: object) -> None:
    """What came out must be fit for use, too."""
    repr(result)
    if isinstance(result, modelkit.Modelfile):
        str(result)
    if isinstance(result, modelkit.Model | modelkit.GenerationStream):
        result.close()


def test_every_public_function_is_thrown_at() -> None:
    """A new one, or a new argument, has to be added above."""
    public = {
        f"model.{name}": getattr(modelkit.Model, name) for name in dir(modelkit.Model) if name[0] != "_"
    }
    public |= {f"modelkit.{name}": getattr(modelkit, name) for name in modelkit.__all__}
    functions = {name: one for name, one in public.items() if inspect.isfunction(one)}
    missing = functions.keys() - CALLS.keys() - {"model.close"}
    assert not missing
    for name, function in functions.items():
        for argument in inspect.signature(function).parameters.values():
            known = argument.name == "self" or argument.kind is argument.VAR_KEYWORD
            assert known or name == "model.close" or argument.name in CALLS[name], (name, argument.name)


BAD: dict[str, tuple[Callable[[modelkit.Model], object], str]] = {
    "prompt None": (lambda m: m.generate(None), "prompt is None, expected a list of token ids, or a text"),  # pyright: ignore
    "prompt bytes": (lambda m: m.generate(b"x"), "prompt is b'x', expected"),
    "prompt set": (lambda m: m.generate({1, 2}), "prompt is a set, expected"),  # pyright: ignore
    "prompt mapping": (lambda m: m.generate({1: 2}), "prompt is {1: 2}, expected"),  # pyright: ignore
    "prompts": (lambda m: m.generate(["a", "b"]), r"prompt\[0\] is 'a', expected a token id"),  # pyright: ignore
    "chat tools": (lambda m: m.chat([USER], tools=5), "tools is 5, expected a list"),  # pyright: ignore
    "chat text": (lambda m: m.chat("x"), "messages is 'x', expected a list of messages"),  # pyright: ignore
    "chat numbers": (lambda m: m.chat([5]), r"messages\[0\] is 5, expected an object"),  # pyright: ignore
    "variables": (lambda m: m.chat([USER], variables=5), "variables is 5, expected a mapping"),  # pyright: ignore
    "chunk": (lambda m: m.logits([1], chunk="a"), "chunk is 'a', expected a whole number"),  # pyright: ignore
    "format": (lambda m: m.generate("a", format=5), "format is 5, expected"),  # pyright: ignore
    "grammar": (lambda m: m.generate("a", grammar=5), "grammar is 5, expected a text"),  # pyright: ignore
    "logprobs": (lambda m: m.generate("a", top_logprobs="x"), "top_logprobs is 'x', expected"),  # pyright: ignore
    "stream": (lambda m: m.generate("a", stream="x"), "stream is 'x', expected True or False"),  # pyright: ignore
    "truncate": (lambda m: m.chat([USER], truncate=1), "truncate is 1, expected True or False"),  # pyright: ignore
    "load": (lambda m: modelkit.load(5), "name is 5, expected a model's name, address or path"),  # pyright: ignore
    "create": (lambda m: modelkit.create(5), "modelfile is 5, expected a path"),  # pyright: ignore
    "directives": (lambda m: modelkit.Modelfile(5), "directives is 5, expected a list"),  # pyright: ignore
}


@pytest.mark.parametrize(("use", "said"), BAD.values(), ids=BAD)
def test_wrong_types_are_named(
    model: modelkit.Model, use: Callable[[modelkit.Model], object], said: str
) -> None:
    with pytest.raises(RequestError, match=said):
        use(model)


def test_a_misspelt_parameter_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(ParameterError, match="temprature") as caught:
        modelkit.load("there is no such model", temprature=1)  # pyright: ignore[reportCallIssue]
    assert "temperature" in str(caught.value)


def test_ids_of_other_whole_number_types_are_ids(model: modelkit.Model) -> None:
    plain = model.generate([5, 6, 7], temperature=0, num_predict=4)
    for ids in ((5, 6, 7), range(5, 8), np.array([5, 6, 7])):
        assert model.generate(ids, temperature=0, num_predict=4).ids == plain.ids  # pyright: ignore


def test_ctrl_c_passes(model: modelkit.Model) -> None:
    def messages() -> Iterator[dict[str, str]]:
        yield USER
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.chat(messages())


class Stop(Exception):
    pass


class Stopping:
    """A progress whose user has had enough."""

    def begin(self, *_: object) -> None:
        raise Stop

    advance = finish = begin


def test_what_callbacks_raise_is_the_callers(home: Path, tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise Stop

    with pytest.raises(Stop):
        modelkit.load("story", home=home, on_memory=stop)
    with pytest.raises(Stop):
        modelkit.create(home / "Modelfile", name="new", quantize="q4", home=tmp_path, progress=Stopping())


def test_an_error_of_the_disk_is_ours(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error", "model.safetensors")

    monkeypatch.setattr("modelkit.pack.build.write_weights", fail)
    with pytest.raises(ModelkitError, match=r"(?i)model.safetensors: input/output error"):
        modelkit.create(home / "Modelfile", name="other", home=home)


def test_results_are_short_in_a_notebook(home: Path, model: modelkit.Model) -> None:
    created = modelkit.create(home / "Modelfile", name="story", home=home)
    answer = model.generate("Hi", num_predict=200)
    with model.generate("Hi", num_predict=2, stream=True) as pieces:
        shown = [repr(one) for one in (created, answer, model, pieces, *modelkit.list(home=home))]
    assert all(len(text) < 120 for text in shown)
    assert str(answer) == answer.text
    assert "story" in shown[0]
    assert "story" in shown[2]


def test_stored_packages_from_python(home: Path) -> None:
    modelkit.copy("story", "tale", home=home)
    names = [str(package.name) for package in modelkit.list("ta", home=home)]
    assert names == ["tale"]
    done = modelkit.export("tale", home / "laid out", home=home)
    assert done.linked + done.copied > 3
    modelkit.remove("tale", home=home)
    assert not modelkit.list("ta", home=home)


def test_the_root_offers_what_it_says() -> None:
    for name in modelkit.__all__:
        assert getattr(modelkit, name) is not None
