"""Values outside their range never reach the arrays."""

import dataclasses

import pytest

from runtime.sampling.params import SamplingParams


def test_defaults_change_nothing() -> None:
    p = SamplingParams()
    assert not p.greedy
    assert not p.penalised


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_p", 1.01),
        ("min_p", -0.01),
        ("typical_p", 2.0),
        ("repeat_penalty", 0.0),
        ("presence_penalty", float("inf")),
        ("frequency_penalty", float("nan")),
        ("repeat_last_n", -2),
        ("seed", -1),
        ("seed", 1 << 64),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {1 << 31: 1.0}),
        ("logit_bias", {3: float("nan")}),
        ("logit_bias", {3: 1e39}),
        ("logit_bias", {3: -1e39}),
        ("logit_bias", dict.fromkeys(range(1025), 1.0)),
    ],
)
def test_names_the_field_that_is_out_of_range(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        SamplingParams(**{name: value})  # pyright: ignore[reportArgumentType]  # wrong on purpose


@pytest.mark.parametrize("its", [{"temperature": 0.0}, {"temperature": 1e-7}, {"top_k": 1}])
def test_greedy_without_noise(its: dict[str, float]) -> None:
    assert SamplingParams(**its).greedy  # pyright: ignore[reportArgumentType]  # a table


def test_a_window_of_nothing_penalises_nothing() -> None:
    assert not SamplingParams(repeat_penalty=1.3, repeat_last_n=0).penalised


def test_is_a_value() -> None:
    p = SamplingParams(logit_bias={3: 1.0})
    assert p == SamplingParams(logit_bias={3: 1.0})
    assert len({p, dataclasses.replace(p)}) == 1
    with pytest.raises(TypeError):
        p.logit_bias[4] = 1.0  # pyright: ignore[reportIndexIssue]  # wrong on purpose


def test_later_changes_of_the_given_mapping_do_not_matter() -> None:
    bias = {3: 1.0}
    p = SamplingParams(logit_bias=bias)
    bias[3] = 9.0
    assert p.logit_bias[3] == 1.0
