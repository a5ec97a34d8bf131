"""A model in a running server, and servers that send anything but what they should."""

import json
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import modelkit
from modelkit.answers.generation import Finish, Generation
from modelkit.chat.message import Message, ToolCall
from modelkit.client import connection as wire
from modelkit.client.answers import ServedAnswer
from modelkit.client.connection import Connection, announced
from modelkit.client.fields import Fields
from modelkit.client.model import Served
from modelkit.errors import Busy, DiskFull, ModelkitError, ModelNotFound, ParameterError, RequestError
from modelkit.model import Model
from modelkit.modelfile import Parameters
from modelkit.output.events import CallArguments, CallEnd, CallStart, Text, Thinking
from modelkit.server.access import Access
from modelkit.server.own.lines import line
from modelkit.settings import Settings
from runtime.engine.request import Drafts, TokenLogprob, Usage
from tests.support.running_server import Running, running
from tests.support.standing import standing
from tests.support.tiny import TEMPLATE, write_model

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("served")
    write_model(home / "model", template=TEMPLATE)
    (home / "Modelfile").write_text(f"FROM {home / 'model'}\nPARAMETER num_predict 9\n")
    modelkit.create(home / "Modelfile", name="story", home=home)
    with running(home) as server:
        yield server


@pytest.fixture
def served(server: Running) -> Iterator[Served]:
    with Served(Connection(server.address), "story", Parameters({"temperature": 0})) as model:
        yield model


def test_it_has_the_facts_of_a_model_that_is_loaded_here(server: Running, served: Served) -> None:
    home = server.serving.settings.home
    with modelkit.load("story", home=home, temperature=0) as here:
        for name in ("name", "digest", "context_length", "has_template", "adapters", "notes", "defaults"):
            assert getattr(served, name) == getattr(here, name), name
        assert served.memory.weight_bytes == here.memory.weight_bytes
        ours, theirs = (one.chat(HELLO, stream=True, top_logprobs=2).whole() for one in (here, served))
        assert (theirs.text, theirs.ids, theirs.reason, theirs.cut) == (
            ours.text,
            ours.ids,
            "length",
            ours.cut,
        )
        for mine, yours in zip(ours.logprobs, theirs.logprobs, strict=True):
            assert (mine.id, mine.top[0][0]) == (yours.id, yours.top[0][0])
        assert served.decode(ours.ids) == here.decode(ours.ids)
        assert served.generate([5, 6, 7], stream=True).whole().ids == here.generate([5, 6, 7]).ids
        assert sum(one.size_bytes for one in served.prefixes()) > 0
        assert served.can_think() is here.thinking.can is False


def test_leaving_stops_the_answer_within_a_moment(server: Running, served: Served) -> None:
    (model,) = server.pool.models()
    for leave in ("break", "error"):
        with standing(model):
            asked = served.generate("Once", raw=True, stream=True, num_predict=240, temperature=1)
            with suppress(KeyboardInterrupt), asked as answer:
                for _ in answer:
                    if leave == "error":
                        raise KeyboardInterrupt
                    break
            assert asked.result.reason == "cancelled"
            assert len(asked.result.ids) >= 1
            end = time.monotonic() + 20
            while model.activity.running and time.monotonic() < end:
                time.sleep(0.005)
            assert model.activity.running == 0


def test_a_key_may_have_any_letters(tmp_path: Path) -> None:
    with running(tmp_path, access=Access(("schlüssel ключ",))) as server:
        with Connection(server.address, "schlüssel ключ") as ours:
            assert ours.get("/modelkit/v1/ps") == {"models": []}
        with Connection(server.address, "schlüssel") as other, pytest.raises(ModelkitError, match="API key"):
            other.get("/modelkit/v1/ps")


def test_what_was_refused_is_raised_where_it_was_asked(served: Served) -> None:
    with pytest.raises(RequestError, match="messages"):
        served.chat([{"role": "king", "content": ""}])
    with pytest.raises(ParameterError, match="num_batch cannot change for one request"):
        served.generate("x", num_batch=3)
    with Connection(served.address) as asked, pytest.raises(ModelNotFound):
        Served(asked, "none")


def test_a_smaller_context_goes_with_each_request_and_a_larger_one_cannot(server: Running) -> None:
    with Served(Connection(server.address), "story", Parameters({"num_ctx": 20, "num_predict": -1})) as short:
        assert (short.context_length, short.differs) == (20, ())
        answer = short.generate("abcdefgh", raw=True, stream=True).whole()
        assert (answer.usage.prompt_tokens + len(answer.ids), answer.cut) == (20, "context")
    with Served(Connection(server.address), "story", Parameters({"num_ctx": 999, "num_batch": 3})) as other:
        assert other.differs == ("num_ctx", "num_batch")


EVENTS = [
    Thinking("hm", (1,)),
    Text("so", (2, 3), (TokenLogprob(2, -0.5, ((2, -0.5), (4, -1.5))), TokenLogprob(3, -0.25))),
    CallStart(0, "call_1", "find"),
    CallArguments(0, '{"a": 1}'),
    CallEnd(0),
    CallStart(1, "call_2", "find"),
    CallArguments(1, '{"a": '),
    CallEnd(1, "oops}"),
]


def test_lines_are_read_as_they_were_written() -> None:
    usage = Usage(3, 1, 4, 5, 2, 0.5, 0.25, 0.125, 3, 6, (Drafts("draft", 5, 2, (1, 0, 1)),))
    ended = Generation(
        "so",
        (1, 2, 3, 9),
        usage,
        "length",
        7,
        cut="context",
        dropped_messages=2,
        parsed={"a": [1]},
        notes=("x",),
    )

    @contextmanager
    def lines() -> Generator[Any]:
        yield (json.loads(json.dumps(line(one, str))) for one in [*EVENTS, Finish(ended)])

    answer = ServedAnswer(lines(), 7, lambda _: None)
    *events, finish = answer.events()
    assert events == EVENTS
    assert isinstance(finish, Finish)
    got = finish.answer
    assert (got.usage, got.ids, got.cut, got.parsed) == (usage, ended.ids, "context", {"a": [1]})
    assert got.notes == ("x",)
    assert (got.thinking, got.text, got.tool_calls[0].arguments) == ("hm", "so", {"a": 1})
    assert got.tool_calls[1].written == '{"a": oops}'
    assert [one.id for one in got.logprobs] == [2, 3]


def test_a_call_that_went_wrong_goes_back_as_it_was_written(
    server: Running, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does where the model is loaded here; it is no reason to refuse what follows."""
    heard: list[Any] = []

    def chat(self: Any, messages: Any, **options: Any) -> Any:
        heard.append([Message.read(one) for one in messages])
        raise RequestError("enough")

    monkeypatch.setattr(Model, "chat", chat)
    calls = [ToolCall("find", {}, "c1", text) for text in ('{"a": oops}', '{"a": 1e999}')]
    talk = [Message("user", "?"), Message("assistant", "", tool_calls=(*calls, ToolCall("find", {"a": 2})))]
    for given in (talk, [{"role": "user", "content": "?"}, one_of_the_page(calls)]):
        with pytest.raises(RequestError, match="enough"):
            served.chat(given)
    assert heard[0] == talk
    assert heard[1][1].tool_calls == tuple(calls)


def one_of_the_page(calls: list[ToolCall]) -> dict[str, Any]:
    written = [
        {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.written}}
        for one in calls
    ]
    return {"role": "assistant", "content": "", "tool_calls": written}


@contextmanager
def stranger(answer: Callable[[BaseHTTPRequestHandler], None]) -> Generator[str]:
    """A server that does this with every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))  # or what is sent may not arrive
            answer(self)

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def less_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_MOST_BYTES", 200_000)


def sending(data: bytes, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Any:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers:
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (sending(b"<html>"), ModelkitError, "is it a modelkit server"),
        (sending(b"[1]"), ModelkitError, "not a JSON object"),
        (sending(b"[" * 100_000), ModelkitError, "is it a modelkit server"),
        (sending(b"{}"), ModelkitError, "sends facts as None"),
        (sending(b'{"facts": {"name": 5}}'), ModelkitError, "sends name as 5"),
        (sending(b"x" * 300_000), ModelkitError, "more than 200,000 bytes"),
        (sending(b"", 302, (("location", "http://127.0.0.1:1/"),)), ModelkitError, "the server failed"),
        (sending(b"oops", 500), ModelkitError, r"the server failed \(500\)\nIs that a modelkit server?"),
        (sending(b'{"error": {"a": 1}}', 400), RequestError, "the server failed"),
        (sending(b'{"error": "no", "kind": "busy"}', 503, (("retry-after", "9"),)), Busy, "no"),
        (sending(b'{"error": "no room", "kind": "disk_full"}', 507), DiskFull, "no room"),
        (sending(b"", 200, (("content-length", "10"),)), ModelkitError, "stopped answering"),
    ],
)
def test_whatever_a_server_sends_is_one_message(answer: Any, error: type[ModelkitError], said: str) -> None:
    with stranger(answer) as address, Connection(address) as asked, pytest.raises(error, match=said):
        Served(asked, "story")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            b'{"type": "start"}\n{"type": "text", "text": "a", "ids": [1]}\n',
            "ended the connection in the middle",
        ),
        (b'{"type": "text", "text": "a", "ids": [-1]}\n', "sends ids as"),
        (b'{"type": "text", "text": 7}\n', "sends text as 7"),
        (b'{"type": "colour"}\n', "unknown type"),
        (b'{"type": "text", "te', "ended the connection in the middle of a line"),
        (b"\n\n\n", "ended the connection"),
        (b"x" * 300_000, "a line without an end"),
        (b'{"error": {"kind": "busy", "message": "full"}}\n', "full"),
    ],
)
def test_an_answer_that_is_none_is_one_message(data: bytes, said: str) -> None:
    with stranger(sending(data)) as address, Connection(address) as asked:
        answer = ServedAnswer(asked.lines("/x", {}), 1, lambda _: None)
        with pytest.raises(ModelkitError, match=said):
            answer.whole()
        with pytest.raises(ModelkitError, match=said):
            _ = answer.result


@pytest.mark.parametrize(
    "written",
    [b"", b"[]", b"{}", b'{"url": 5}', b'{"url": "file:///etc"}', b'{"url": "http://a@b/"}', b"[" * 5000],
)
def test_a_broken_announcement_is_none(tmp_path: Any, written: bytes) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "serve.json").write_bytes(written)
    assert announced(tmp_path) is None


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("[::1]:80", "http://[::1]:80"),
        ("https://studio:1", "https://studio:1"),
    ],
)
def test_the_environment_says_where_it_is(monkeypatch: pytest.MonkeyPatch, host: str, address: str) -> None:
    monkeypatch.setenv("MODELKIT_HOST", host)
    assert wire.find_server(Settings.from_environment()) == address


def test_an_address_that_is_none() -> None:
    with pytest.raises(ModelkitError, match="is not an address of a server"):
        wire.Connection("http://[::::]:1")


def test_fields_are_of_their_types() -> None:
    said = Fields({"a": True, "b": 2**70, "c": [1, "x"], "d": {"e": 1.5}})
    reads = [
        lambda: said.whole("a"),
        lambda: said.whole("b"),
        lambda: said.texts("c"),
        lambda: said.text("d"),
    ]
    for read in reads:
        with pytest.raises(ModelkitError, match="is it of another version"):
            read()
    assert said.fields("d").number("e") == 1.5
