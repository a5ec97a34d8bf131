"""What is read of drawn tokens is read as it lies: a slice would be computed behind the step on its way."""

from array import array
from types import SimpleNamespace
from typing import Any, cast

from runtime.engine.drawing import Drawing, Drawn
from runtime.engine.request import Request, TokenLogprob
from runtime.engine.row import Row
from runtime.engine.stream import Stream
from runtime.sampling.logprobs import Logprobs
from runtime.sampling.params import SamplingParams


def lying(kind: str, shape: list[int], *values: float) -> Any:
    """Like an array that is computed; of its slices there are none (`memoryview` refuses them)."""
    return memoryview(memoryview(array(kind, values)).cast("B")).cast(cast("Any", kind), shape)


def rows(*top_logprobs: int | None) -> Any:
    return [SimpleNamespace(request=SimpleNamespace(top_logprobs=wanted)) for wanted in top_logprobs]


def test_nothing_is_computed_to_read_tokens_and_their_details() -> None:
    of = Logprobs(
        lying("f", [2, 1], -0.5, -2.0),
        lying("i", [2, 1, 3], 7, 8, 9, 4, 5, 6),
        lying("f", [2, 1, 3], -0.5, -1.5, -2.5, -1.0, -2.0, -3.0),
    )
    drawn = Drawn(rows(3, 1), lying("i", [2, 1], 7, 5), of, lying("b", [2, 1], 0, 1))
    assert drawn.read() == [[7], [5]]
    assert [drawn.is_broken(place, 0) for place in (0, 1)] == [False, True]
    assert drawn.details(0, 0) == TokenLogprob(7, -0.5, ((7, -0.5), (8, -1.5), (9, -2.5)))
    assert drawn.details(1, 0) == TokenLogprob(5, -2.0, ((4, -1.0),))


def test_a_row_gets_as_many_alternatives_as_there_are_tokens() -> None:
    of = Logprobs(lying("f", [1, 1], -0.5), lying("i", [1, 1, 2], 1, 0), lying("f", [1, 1, 2], -0.5, -1.0))
    drawn = Drawn(rows(20), lying("i", [1, 1], 1), of)
    assert drawn.details(0, 0) == TokenLogprob(1, -0.5, ((1, -0.5), (0, -1.0)))
    assert not drawn.is_broken(0, 0)


def test_all_that_will_be_read_is_computed_with_the_tokens() -> None:
    of = Logprobs(*(lying("i", [1], number) for number in (1, 2, 3)))
    tokens, broken = lying("i", [1], 0), lying("i", [1], 4)
    assert Drawn(rows(0), tokens, of, broken).arrays == [tokens, *of.arrays, broken]
    assert Drawn(rows(None), tokens).arrays == [tokens]


def test_a_row_is_drawn_as_it_asks_for_whoever_stood_in_its_place() -> None:
    """The list of decoding rows is one and the same for as long as the engine lives."""
    drawing, one, other = Drawing(160), *(row(SamplingParams(seed=seed)) for seed in (1, 2))
    decoding = [one]
    of_one = drawing.sampler(decoding)
    assert drawing.sampler([one]) is of_one
    decoding[0] = other
    assert drawing.sampler(decoding) is not of_one


def row(sampling: SamplingParams) -> Row:
    return Row(Request((3, 4), 5, sampling), Stream())
