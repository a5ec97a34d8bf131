"""Pieces of an answer: text, ids and special tokens in their order."""

import asyncio
import codecs
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import modelkit
from modelkit.answers.waker import Waker
from modelkit.errors import Busy, ParameterError, RequestError
from modelkit.faults import as_modelkit_error
from modelkit.output.events import Text
from modelkit.output.pieces import Piece, Pieces
from modelkit.tokenizer import Tokenizer, load_tokenizer
from runtime.engine.notifier import Notifier
from runtime.engine.request import Delta, TokenLogprob
from runtime.engine.stream import Stream, WakeFailed
from tests.modelkit.tokenizer.small import folder_files
from tests.support.standing import standing
from tests.support.tiny import TEMPLATE, write_model


@pytest.fixture(scope="module", params=["tokenizers/gpt-2", "tokenizers/llama-spm"])
def tokenizer(request: pytest.FixtureRequest, shared_data: Path) -> Tokenizer:
    return load_tokenizer(folder_files(shared_data / request.param))


def cut(tokenizer: Tokenizer, ids: list[int]) -> list[Piece]:
    pieces = Pieces(tokenizer)
    out = [piece for token in ids for piece in pieces.push(token, TokenLogprob(token, -1.0))]
    return out + pieces.finish()


def before_stop(text: str, stops: list[str]) -> str:
    return text[: min([at for stop in stops if (at := text.find(stop)) >= 0], default=len(text))]


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_pieces_are_the_answer(tokenizer: Tokenizer, data: st.DataObject) -> None:
    special = sorted(tokenizer.special_ids)
    one = st.one_of(st.sampled_from(special), st.integers(0, 300), st.integers(0, tokenizer.vocab_size - 1))
    ids = data.draw(st.lists(one, max_size=25))
    pieces = cut(tokenizer, ids)
    assert [token for piece in pieces for token in piece.ids] == ids
    assert "".join(piece.text for piece in pieces) == tokenizer.decode(ids)
    assert [log.id for piece in pieces for log in piece.logprobs] == ids
    for piece in pieces:
        assert (piece.special is not None) == bool(tokenizer.special_ids & {*piece.ids})
        assert piece.special is None or (len(piece.ids), piece.text) == (1, "")
        assert piece.text or piece.ids


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_texts_together_are_those_of_each(tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids = st.one_of(st.integers(0, 300), st.integers(0, tokenizer.vocab_size + 2))
    each, together = Pieces(tokenizer), Pieces(tokenizer)
    for some in data.draw(st.lists(st.lists(ids, min_size=1, max_size=6), max_size=8)):
        told = together.push_each(some, [TokenLogprob(token, -1.0) for token in some])
        assert (told is None) == (not tokenizer.special_ids.isdisjoint(some))
        if told is not None:
            out = [piece for token in some for piece in each.push(token, TokenLogprob(token, -1.0))]
            assert told[0] == [piece.text for piece in out]
            assert told[1] == [token for piece in out for token in piece.ids] == [one.id for one in told[2]]
    assert together.finish() == each.finish()


@settings(max_examples=100, deadline=None)
@given(
    first=st.sampled_from(["x", ""]),
    text=st.text("ab \n\t\x0c\u00e9\u20ac\U0001f642", min_size=1, max_size=12),
)
def test_a_token_has_its_own_text(tokenizer: Tokenizer, first: str, text: str) -> None:
    """Bytes that fall back are text once a token behind them is there; it is theirs all the same, also behind
    the blank that begins an answer and is left out.
    """
    ids = tokenizer.encode(first + text, add_special=False)
    decoder = codecs.getincrementaldecoder("utf-8")()
    texts = [decoder.decode(tokenizer.bytes_of(token)) for token in ids]
    dropped = len("".join(texts)) - len(tokenizer.decode(ids))
    assert [piece.text for piece in cut(tokenizer, ids)] == [texts[0][dropped:], *texts[1:]]


@settings(max_examples=100, deadline=None)
@given(words=st.lists(st.text("abc XYZ", min_size=1, max_size=6), min_size=2, max_size=4))
def test_a_special_token_stands_where_it_was_written(tokenizer: Tokenizer, words: list[str]) -> None:
    marker = min(tokenizer.special_ids)
    ids = [tokenizer.encode(word, add_special=False) for word in words]
    joined = [token for part in ids for token in [*part, marker]]
    seen, at = [""], 0
    for piece in cut(tokenizer, joined):
        if piece.special is None:
            seen[at] += piece.text
        else:
            assert piece.special == tokenizer.id_to_piece(marker)
            seen.append("")
            at += 1
    upto = [tokenizer.decode(joined[: sum(len(part) + 1 for part in ids[: n + 1])]) for n in range(len(ids))]
    assert ["".join(seen[: n + 1]) for n in range(len(ids))] == upto


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("pieces") / "model", template=TEMPLATE)


@pytest.fixture(scope="module")
def model(tiny: Path) -> Iterator[modelkit.Model]:
    with modelkit.load(tiny) as loaded:
        yield loaded


def test_pieces_of_a_stream_are_its_result(model: modelkit.Model) -> None:
    stream = model.generate("Once", raw=True, seed=2, num_predict=40, top_logprobs=2, stream=True)
    pieces = list(stream.pieces())
    result = stream.result
    assert tuple(token for piece in pieces for token in piece.ids) == result.ids
    assert tuple(one for piece in pieces for one in piece.logprobs) == result.logprobs
    assert "".join(piece.text for piece in pieces) == result.text
    assert result.text == model.generate("Once", raw=True, seed=2, num_predict=40).text


def test_plain_and_full_reading_share_one_answer(model: modelkit.Model) -> None:
    stream = model.generate("Once", raw=True, seed=2, num_predict=30, stream=True)
    text = next(stream)
    text += "".join(piece.text for piece in stream.pieces())
    assert text == stream.result.text == model.generate("Once", raw=True, seed=2, num_predict=30).text


def test_what_stop_strings_hold_back_comes_once(model: modelkit.Model) -> None:
    """Pieces have at once what loops may have to wait for."""
    bias = dict.fromkeys(model.encode("abc"), 4000.0)

    def begin(**options: object) -> modelkit.GenerationStream:
        drawn = {"seed": 3, "temperature": 40.0, "num_predict": 40, "logit_bias": bias, **options}
        return model.generate("Once", raw=True, stream=True, **drawn)  # pyright: ignore

    text = begin().whole().text
    stop = text[6:9]
    told = before_stop(text, [stop])
    for way in (lambda stream: [*stream.pieces()], modelkit.GenerationStream.take):
        stream = begin(stop=[stop])
        next(stream)
        with pytest.raises(RequestError, match="read as text so far"):
            way(stream)
        assert stream.whole().text == told
    stream = begin(stop=[stop])
    next(stream.pieces())
    for read in (next, lambda stream: next(iter(stream.events())), modelkit.GenerationStream.take_events):
        with pytest.raises(RequestError, match="read as pieces so far"):
            read(stream)
    assert stream.whole().text == told
    assert [*stream] == []
    stream, got = begin(stop=[stop]), ""
    while event := next((event for event in stream.events() if isinstance(event, Text)), None):
        got += event.text  # a loop that was left is gone on with by the next
    assert got == stream.result.text == told


def test_leaving_ends_the_pieces(model: modelkit.Model) -> None:
    with standing(model):
        stream = model.generate("Once", raw=True, seed=2, num_predict=200, stream=True)
        for piece in stream.pieces():
            assert piece.ids
            stream.cancel()
    assert stream.result.reason == "cancelled"


def test_a_stop_string_ends_the_pieces(model: modelkit.Model) -> None:
    whole = model.generate("Once", raw=True, seed=2, num_predict=60)
    stop = whole.text[10:13]
    stream = model.generate("Once", raw=True, seed=2, num_predict=60, stop=[stop], stream=True)
    pieces = list(stream.pieces())
    result = stream.result
    assert (result.reason, result.stop) == ("stop", stop)
    assert result.text == before_stop(whole.text, [stop])
    assert "".join(piece.text for piece in pieces).startswith(result.text + stop)
    assert tuple(token for piece in pieces for token in piece.ids) == result.ids


async def read(model: modelkit.Model, seed: int, **options: object) -> modelkit.Generation:
    stream = model.generate("Once", raw=True, seed=seed, num_predict=40, stream=True, **options)  # pyright: ignore
    text = "".join([part async for part in stream])
    assert text == stream.result.text
    return stream.result


def test_event_loops_read_side_by_side(model: modelkit.Model) -> None:
    async def together() -> list[modelkit.Generation]:
        return await asyncio.gather(*(read(model, seed) for seed in range(5)))

    answers = asyncio.run(together())
    assert [one.ids for one in answers] == [
        model.generate("Once", raw=True, seed=seed, num_predict=40).ids for seed in range(5)
    ]
    stop = answers[0].text[8:11]
    stopped = asyncio.run(read(model, 0, stop=[stop]))
    assert stopped.stop == stop
    assert stopped.usage.prompt_tokens == answers[0].usage.prompt_tokens


def test_an_event_loop_that_goes_on_without_it_cancels(model: modelkit.Model) -> None:
    async def first() -> modelkit.GenerationStream:
        stream = model.generate("Once", raw=True, seed=1, num_predict=200, stream=True)
        parts = aiter(stream)
        await anext(parts)
        await parts.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        return stream

    with standing(model):
        stream = asyncio.run(first())
    assert stream.result.reason == "cancelled"


def test_an_answer_whose_event_loop_was_closed_says_so() -> None:
    loop, notifier = asyncio.new_event_loop(), Notifier()
    stream = Stream(notifier, Waker(loop).wake)
    loop.close()
    stream.put(Delta((1,)))
    notifier.notify()
    with pytest.raises(WakeFailed) as caught:
        list(stream)
    assert str(as_modelkit_error(caught.value)).startswith(
        "the event loop that read this answer cannot be reached"
    )


def test_a_busy_model_says_so_and_loses_nothing(tiny: Path) -> None:
    with modelkit.load(tiny, max_waiting=1) as model:
        wanted = model.generate("Once", raw=True, seed=1, num_predict=20).ids
        held = threading.Event()
        engine = model._running.engine  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
        blocked = threading.Thread(target=lambda: engine.call(lambda _model: held.wait(100)))
        blocked.start()
        waits = model.generate("Once", raw=True, seed=1, num_predict=20, stream=True)
        with pytest.raises(Busy, match="1 request waits") as caught:
            model.generate("Once", raw=True)
        assert caught.value.waiting == 1
        assert caught.value.hint is not None
        assert "max_waiting" in caught.value.hint
        held.set()
        blocked.join()
        assert waits.whole().ids == wanted


@pytest.mark.parametrize("value", [0, -1, 1.5, "many", True])
def test_a_limit_that_is_none(tiny: Path, value: object) -> None:
    with pytest.raises((ParameterError, RequestError), match="max_waiting"):
        modelkit.load(tiny, max_waiting=value)  # pyright: ignore[reportArgumentType]
