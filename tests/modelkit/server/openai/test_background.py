"""Responses that are made in the background, or listed again, by OpenAI's own client."""

import time
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response

from modelkit.server.openai import background
from modelkit.server.serving import Serving
from runtime.engine.loop import Loop
from tests.support.served import wait_until

ASK: Any = {"model": "tiny", "input": "hi", "max_output_tokens": 12, "temperature": 0}
LONG: Any = {**ASK, "max_output_tokens": 900, "extra_body": {"regex": "a{600}"}}


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long answer takes half a minute, whatever the machine."""
    step = Loop._step

    def late(loop: Loop, prefill: int) -> None:
        time.sleep(0.05)
        step(loop, prefill)

    monkeypatch.setattr(Loop, "_step", late)


def ended(client: openai.OpenAI, made: Response) -> Response:
    stop = time.monotonic() + 120
    while made.status in ("queued", "in_progress"):
        assert time.monotonic() < stop
        time.sleep(0.01)
        made = client.responses.retrieve(made.id)
    return made


def test_it_is_made_and_kept_as_any_other(client: openai.OpenAI) -> None:
    whole = client.responses.create(**ASK)
    made = client.responses.create(**ASK, background=True)
    assert made.background is True
    assert made.status in ("queued", "in_progress", "incomplete")
    again = ended(client, made)
    assert (again.status, again.output_text) == (whole.status, whole.output_text)
    assert again.usage is not None
    more = client.responses.create(**{**ASK, "input": "and?"}, previous_response_id=made.id)
    assert more.usage is not None
    assert more.usage.input_tokens > again.usage.input_tokens


def test_its_stream_can_be_taken_up_again(client: openai.OpenAI) -> None:
    with client.responses.create(**LONG, background=True, stream=True) as stream:
        first = [event for event, _ in zip(stream, range(6), strict=False)]
    assert [one.type for one in first[:3]] == ["response.created", "response.queued", "response.in_progress"]
    id = first[0].response.id  # type: ignore[union-attr] # noqa: A001
    rest = list(client.responses.retrieve(id, stream=True, starting_after=first[-1].sequence_number))
    events = [*first, *rest]
    assert [one.sequence_number for one in events] == list(range(len(events)))
    last: Any = events[-1]
    assert last.type == "response.completed"
    text = "".join(one.delta for one in events if one.type == "response.output_text.delta")
    assert text == last.response.output_text == client.responses.retrieve(id).output_text
    assert list(client.responses.retrieve(id, stream=True)) == events
    assert list(client.responses.retrieve(id, stream=True, starting_after=99999)) == []


@pytest.mark.usefixtures("slow")
def test_it_can_be_cancelled(client: openai.OpenAI, serving: Serving) -> None:
    made = client.responses.create(**LONG, background=True)
    wait_until(lambda: client.responses.retrieve(made.id).status == "in_progress")
    with client.responses.retrieve(made.id, stream=True) as stream:
        assert len(client.responses.input_items.list(made.id).data) == 1
        cancelled = client.responses.cancel(made.id)
        assert not serving.state.underway
        events: list[Any] = list(stream)
    assert cancelled.status == "cancelled"
    assert (events[-1].type, events[-1].response.status) == ("response.failed", "cancelled")
    assert cancelled.output_text == events[-1].response.output_text
    assert client.responses.cancel(made.id) == client.responses.retrieve(made.id) == cancelled
    with pytest.raises(openai.BadRequestError, match="no whole answer to go on from"):
        client.responses.create(**ASK, previous_response_id=made.id)


@pytest.mark.usefixtures("slow")
def test_one_that_runs_can_be_forgotten(client: openai.OpenAI, serving: Serving) -> None:
    made = client.responses.create(**LONG, background=True)
    client.responses.delete(made.id)
    assert not serving.state.underway
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_what_is_wrong_at_once_is_an_error_of_its_request(
    client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_PATIENCE_S", 60)
    made = client.responses.create(**ASK)
    with pytest.raises(openai.NotFoundError, match="there is no model 'other'"):
        client.responses.create(**{**ASK, "model": "other"}, background=True)
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        client.responses.create(**{**ASK, "input": "x" * 5000}, background=True)
    with pytest.raises(openai.BadRequestError, match="in the background can be cancelled"):
        client.responses.cancel(made.id)
    with pytest.raises(openai.BadRequestError, match="only a response that was made in the background"):
        client.responses.retrieve(made.id, stream=True)
    with pytest.raises(openai.NotFoundError):
        client.responses.cancel("resp_none")


@pytest.mark.usefixtures("slow")
def test_one_that_the_server_ends_has_failed(client: openai.OpenAI, url: str) -> None:
    made = client.responses.create(**LONG, background=True)
    wait_until(lambda: client.responses.retrieve(made.id).status == "in_progress")
    httpx.post(f"{url.removesuffix('/v1')}/modelkit/v1/stop", json={"model": "tiny", "now": True})
    failed = ended(client, made)
    assert failed.status == "failed"
    assert failed.error is not None
    assert "ended this answer" in failed.error.message


def test_the_input_is_listed_page_by_page(client: openai.OpenAI) -> None:
    items: Any = [{"role": "user", "content": f"q{number}"} for number in range(5)]
    made = client.responses.create(**{**ASK, "input": items})
    more = client.responses.create(**ASK, previous_response_id=made.id)
    asked = client.responses.input_items
    listed = list(asked.list(more.id, limit=3))
    assert len(listed) == 7  # with the first answer between
    assert [one.role for one in listed if one.type == "message"] == ["user", "assistant", *["user"] * 5]
    assert [one.id for one in asked.list(more.id, order="asc", limit=2)] == [one.id for one in listed][::-1]
    page = asked.list(more.id, limit=3, after=listed[2].id)
    assert ([one.id for one in page.data], page.has_more) == ([one.id for one in listed[3:6]], True)
    for wrong in ({"limit": 101}, {"order": "up"}, {"after": "msg_none"}):
        with pytest.raises(openai.BadRequestError, match=next(iter(wrong))):
            asked.list(more.id, **wrong)  # type: ignore[arg-type]
