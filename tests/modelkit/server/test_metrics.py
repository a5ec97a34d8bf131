"""What Prometheus reads: its format, few series, and the names of others."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import modelkit
from modelkit.errors import LoadError
from modelkit.model import Model
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event
from modelkit.server.app import make_app
from modelkit.server.metrics import Metrics
from modelkit.server.models.pool import Pool
from modelkit.server.models.tally import Tally
from modelkit.server.serving import Serving
from modelkit.server.trace import Trace
from modelkit.settings import Settings
from runtime.engine.request import Drafts, Usage
from tests.support.served import Quiet, scripted
from tests.support.tiny import TEMPLATE, write_model

LINE = re.compile(
    r'[a-z0-9_:]+(\{[a-z_]+="([^"\\\n]|\\["\\n])*"(,[a-z_]+="([^"\\\n]|\\["\\n])*")*\})? [0-9.e+-]+'
)
USAGE = Usage(
    prompt_tokens=20,
    cached_tokens=8,
    generated_tokens=5,
    drafted_tokens=4,
    accepted_tokens=3,
    wait_s=0.5,
    prefill_s=0.02,
    decode_s=0.04,
    rounds=3,
    drafts=(Drafts("lookup", 4, 3, (1, 1, 1)),),
)

CALLS: list[Event] = [
    *(CallStart(0, "call_a", "weather"), CallArguments(0, '{"city": "Rome"}'), CallEnd(0)),
    *(CallStart(1, "call_b", "clock"), CallArguments(1, "{}"), CallEnd(1)),
    *(CallStart(2, "call_c", "weather"), CallArguments(2, '{"city'), CallEnd(2)),
]


def ended(model: str = "story", **changes: object) -> Trace:
    trace = Trace("id", "POST", "/v1/x", "127.0.0.1", "openai", model)
    trace.status, trace.finish, trace.usages, trace.first_token_s = 200, "stop", [USAGE, USAGE], 0.6
    for name, value in changes.items():
        setattr(trace, name, value)
    return trace


def values(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(LINE.fullmatch(line) for line in lines), [line for line in lines if not LINE.fullmatch(line)]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_rows_of_a_request_are_added_up() -> None:
    metrics = Metrics()
    metrics.request(ended(tool_calls=Counter({"ok": 2, "broken": 1})))
    said = values(metrics.text({"modelkit_requests_running": {(("model", "story"),): 2}}))
    assert said['modelkit_prompt_tokens_total{model="story"}'] == 40
    assert said['modelkit_cached_tokens_total{model="story"}'] == 16
    assert said['modelkit_accepted_tokens_total{model="story",drafter="lookup"}'] == 6
    length = 'modelkit_accepted_length_tokens_{}{{model="story",drafter="lookup"{}}}'
    assert (
        said[length.format("count", "")]
        == said['modelkit_accepted_tokens_total{model="story",drafter="lookup"}']
    )
    assert said[length.format("sum", "")] == 6
    assert [said[length.format("bucket", f',le="{bound}.0"')] for bound in (0, 1, 2, 32)] == [2, 4, 6, 6]
    assert said['modelkit_requests_total{dialect="openai",status="200"}'] == 1
    assert said['modelkit_answers_total{model="story",finish="stop"}'] == 1
    assert said['modelkit_tool_calls_total{model="story",outcome="ok"}'] == 2
    assert said['modelkit_tool_calls_total{model="story",outcome="broken"}'] == 1
    assert said['modelkit_queue_seconds_count{model="story"}'] == 2
    assert said['modelkit_requests_running{model="story"}'] == 2


def test_buckets_are_cumulative() -> None:
    metrics = Metrics()
    for seconds in (0.0, 0.001, 0.0011, 0.5, 1000.0):
        metrics.gaps("story").add(seconds)
    said = values(metrics.text({}))
    buckets = [said[name] for name in said if name.startswith("modelkit_inter_token_seconds_bucket")]
    assert all(here <= there for here, there in pairwise(buckets))
    assert (buckets[0], buckets[-2], buckets[-1]) == (2, 4, 5)
    assert said['modelkit_inter_token_seconds_sum{model="story"}'] == 1000.5021


def test_a_refused_request_has_no_model() -> None:
    metrics = Metrics()
    metrics.request(ended("", status=404, usages=[]))
    said = values(metrics.text({}))
    assert list(said) == ['modelkit_requests_total{dialect="openai",status="404"}']


def test_series_are_few_and_labels_are_escaped() -> None:
    metrics = Metrics()
    metrics.request(ended('a"b\\c\nd'))
    for number in range(1000):
        metrics.request(ended(f"model {number}"))
    text = metrics.text({})
    said = values(text)
    assert 'modelkit_prompt_tokens_total{model="a\\"b\\\\c\\nd"}' in said
    assert said['modelkit_prompt_tokens_total{model="other"}'] > 30_000
    assert sum(name.startswith("modelkit_prompt_tokens_total") for name in said) <= 201


def test_what_the_pool_has_counted() -> None:
    tally = Tally()
    assert not values(Metrics().text({}, tally.counts()))
    tally.failures["story", "error"] += 2
    tally.evictions.update(f"model {number}" for number in range(1000))
    tally.departures["story", "idle"] += 3
    said = values(Metrics().text({}, tally.counts()))
    assert said['modelkit_departures_total{model="story",reason="idle"}'] == 3
    assert said['modelkit_load_failures_total{model="story",reason="error"}'] == 2
    assert said['modelkit_evictions_total{model="model 7"}'] == 1
    assert said['modelkit_evictions_total{model="other"}'] == 800


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A model that calls three tools whatever it is offered, and a name that cannot be loaded."""
    home = tmp_path_factory.mktemp("home")
    folder = write_model(tmp_path_factory.mktemp("model"), template=TEMPLATE)

    def opened(name: str) -> Model:
        if name == "torn":
            raise LoadError("its weights are broken")
        return scripted(modelkit.load(folder, home=home), lambda *_, **__: CALLS)

    pool = Pool(opened)
    serving = Serving(pool, Settings.from_environment({"MODELKIT_HOME": str(home)}), log=Quiet())
    with TestClient(make_app(serving), base_url="http://localhost") as client:
        yield client
    asyncio.run(pool.close())


def test_calls_and_loads_are_counted_by_outcome(caller: TestClient) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    assert caller.post("/v1/chat/completions", json={"model": "tiny", **body}).status_code == 200
    assert caller.post("/v1/chat/completions", json={"model": "torn", **body}).status_code == 500
    said = values(caller.get("/metrics").text)
    calls = {name: count for name, count in said.items() if name.startswith("modelkit_tool_calls_total")}
    assert [name.rpartition("outcome=")[2] for name in calls] == ['"ok"}', '"unknown_name"}', '"broken"}']
    assert set(calls.values()) == {1}
    assert said['modelkit_load_failures_total{model="torn",reason="error"}'] == 1
    idle = {
        name.partition("{")[0]: count
        for name, count in said.items()
        if "_requests_" in name and "{model=" in name
    }
    assert idle == {"modelkit_requests_running": 0, "modelkit_requests_waiting": 0}


def test_the_names_of_offered_tools_are_known_before_an_answer(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("f", "g")]
    template = TEMPLATE.replace("<assistant>", "{{ tools }}<assistant>")
    with modelkit.load(write_model(tmp_path, template=template)) as model:
        for offered, names in ((tools, ("f", "g")), (None, ())):
            with model.chat([{"role": "user", "content": "x"}], tools=offered, stream=True) as answer:
                assert answer.begun.tools == names
        with model.generate("x", raw=True, stream=True) as answer:
            assert answer.begun.tools == ()


def test_names_of_vllm() -> None:
    theirs, ours = Metrics("vllm"), Metrics()
    for metrics in (theirs, ours):
        metrics.request(ended())
    gauges = {"modelkit_requests_waiting": {(("model", "story"),): 1.0}}
    said = values(theirs.text(gauges))
    assert said['vllm:prompt_tokens_total{model_name="story"}'] == 40
    assert said['vllm:num_requests_waiting{model_name="story"}'] == 1
    assert said['vllm:request_success_total{model_name="story",finished_reason="stop"}'] == 1
    assert said['vllm:e2e_request_latency_seconds_count{model_name="story"}'] == 1
    assert "vllm" not in ours.text(gauges)
