"""The fast forms of all recurrent kernels against their definitions."""

from functools import partial

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.nn.scans.causal_conv import causal_conv
from runtime.nn.scans.channel_delta import channel_delta
from runtime.nn.scans.gated_delta import gated_delta
from runtime.nn.scans.linear_scan import linear_scan
from runtime.nn.scans.selective_scan import selective_scan
from runtime.nn.scans.ssd import ssd
from runtime.nn.scans.wkv7 import plain_wkv7, wkv7
from tests.runtime.nn.scans import definitions
from tests.runtime.nn.scans.recurrences import ROWS, Kernel, Outcome, normal, uniform, unit

HEADS, GROUPS, KEY, VALUE = 4, 2, 8, 6
RATES = mx.array([-0.1, -0.5, -1.0, -3.0])
TAPS = 4
FILTERS = mx.array([[0.5, -1.0, 0.25, 2.0], [1.0, 0.0, -0.5, 0.1], [0.3, 0.3, 0.3, 0.3]])[:, :, None]


def _delta(width: int) -> tuple[mx.array, ...]:
    queries, keys = unit(normal(ROWS, width, GROUPS, KEY)), unit(normal(ROWS, width, GROUPS, KEY))
    values = normal(ROWS, width, HEADS, VALUE)
    return queries, keys, values, uniform(-2, 0, ROWS, width, HEADS), uniform(0, 2, ROWS, width, HEADS)


def _channel(width: int) -> tuple[mx.array, ...]:
    queries, keys = unit(normal(ROWS, width, HEADS, KEY)), unit(normal(ROWS, width, HEADS, KEY))
    decay = uniform(-9, 0, ROWS, width, HEADS, KEY)
    return queries, keys, normal(ROWS, width, HEADS, VALUE), decay, uniform(0, 1, ROWS, width, HEADS)


def _wkv7(width: int) -> tuple[mx.array, ...]:
    queries, keys = normal(ROWS, width, HEADS, KEY), normal(ROWS, width, HEADS, KEY)
    decay, rates = uniform(-0.6, 0, ROWS, width, HEADS, KEY), uniform(0, 1, ROWS, width, HEADS, KEY)
    removed = unit(normal(ROWS, width, HEADS, KEY))
    return queries, decay, keys, normal(ROWS, width, HEADS, VALUE), removed, rates


def _ssd(width: int) -> tuple[mx.array, ...]:
    steps = uniform(0, 2, ROWS, width, HEADS)
    return (
        normal(ROWS, width, HEADS, VALUE),
        steps,
        normal(ROWS, width, GROUPS, KEY),
        normal(ROWS, width, GROUPS, KEY),
    )


def _selective(width: int) -> tuple[mx.array, ...]:
    steps = uniform(0, 2, ROWS, width, VALUE)
    return normal(ROWS, width, VALUE), steps, normal(ROWS, width, 4), normal(ROWS, width, 4)


def _fast_conv(x: mx.array, state: mx.array, *, counts: mx.array | None) -> Outcome:
    return causal_conv(x, state, FILTERS, counts=counts)


def _plain_conv(x: mx.array, state: mx.array) -> Outcome:
    seen = mx.concatenate([state, x], axis=1)
    outputs = [(seen[:, i : i + TAPS] * FILTERS[:, :, 0].T).sum(axis=1) for i in range(x.shape[1])]
    return mx.stack(outputs, axis=1), seen[:, seen.shape[1] - TAPS + 1 :]


KERNELS = {
    "gated_delta": Kernel(
        gated_delta, definitions.gated_delta, _delta, lambda: normal(ROWS, HEADS, KEY, VALUE)
    ),
    "channel_delta": Kernel(
        channel_delta, definitions.channel_delta, _channel, lambda: normal(ROWS, HEADS, KEY, VALUE)
    ),
    "wkv7": Kernel(
        wkv7,
        lambda q, g, k, v, r, a, state: plain_wkv7(q, g, k, v, r, a * r, state),
        _wkv7,
        lambda: normal(ROWS, HEADS, KEY, VALUE),
    ),
    "wkv7 one by one": Kernel(
        partial(wkv7, one_by_one=True),
        lambda q, g, k, v, r, a, state: plain_wkv7(q, g, k, v, r, a * r, state),
        _wkv7,
        lambda: normal(ROWS, HEADS, KEY, VALUE),
    ),
    "ssd": Kernel(
        lambda x, d, b, c, state, counts: ssd(x, d, RATES, b, c, state, counts=counts),
        lambda x, d, b, c, state: definitions.ssd(x, d, RATES, b, c, state),
        _ssd,
        lambda: normal(ROWS, HEADS, KEY, VALUE),
    ),
    "selective_scan": Kernel(
        lambda x, d, b, c, state, counts: selective_scan(
            x, d, mx.broadcast_to(RATES[:, None], (4, VALUE)), b, c, state, counts=counts
        ),
        lambda x, d, b, c, state: definitions.selective_scan(
            x, d, mx.broadcast_to(RATES[:, None], (4, VALUE)), b, c, state
        ),
        _selective,
        lambda: normal(ROWS, 4, VALUE),
    ),
    "causal_conv": Kernel(
        _fast_conv, _plain_conv, lambda width: (normal(ROWS, width, 3),), lambda: normal(ROWS, TAPS - 1, 3)
    ),
}


@pytest.fixture(params=sorted(KERNELS))
def kernel(request: pytest.FixtureRequest) -> Kernel:
    mx.random.seed(3)
    return KERNELS[request.param]


@pytest.mark.parametrize("width", [1, 2, 5, 16, 63, 64, 65, 150])
def test_fast_form_is_the_definition(kernel: Kernel, width: int) -> None:
    kernel.check_plain(width)


@pytest.mark.parametrize(("width", "at"), [(2, 1), (9, 4), (80, 64), (80, 79), (130, 1)])
def test_a_step_can_be_cut_anywhere(kernel: Kernel, width: int, at: int) -> None:
    kernel.check_cut(width, at)


@pytest.mark.parametrize(
    ("width", "counts"), [(1, (0, 1)), (6, (6, 2)), (6, (0, 5)), (70, (3, 70)), (70, (66, 64))]
)
def test_padding_changes_nothing(kernel: Kernel, width: int, counts: tuple[int, ...]) -> None:
    kernel.check_ragged(width, counts)


def test_repeated_tokens_do_not_blow_up_the_delta_rule() -> None:
    """One key again and again, nothing forgotten: powers of the chunk's triangle would reach 1e18."""
    width = 128
    keys = mx.broadcast_to(unit(normal(1, 1, 1, KEY)), (1, width, 1, KEY))
    inputs = (keys, keys, normal(1, width, 1, VALUE), mx.zeros((1, width, 1)), mx.full((1, width, 1), 0.99))
    state = mx.zeros((1, 1, KEY, VALUE))
    got, _ = gated_delta(*inputs, state)
    assert float(mx.abs(got - definitions.gated_delta(*inputs, state)[0]).max()) < 1e-4


def test_channels_that_forget_everything_at_once_stay_finite() -> None:
    """exp(-sum of decays) alone would be infinite."""
    queries, keys, values, _, strength = _channel(64)
    decay = mx.full(keys.shape, -30.0)
    state = mx.zeros((ROWS, HEADS, KEY, VALUE))
    got, last = channel_delta(queries, keys, values, decay, strength, state)
    wanted, _ = definitions.channel_delta(queries, keys, values, decay, strength, state)
    assert bool(mx.isfinite(last).all())
    assert float(mx.abs(got - wanted).max()) < 1e-5


@settings(max_examples=25)
@given(width=st.integers(1, 40), seed=st.integers(0, 1000))
def test_linear_scan_is_the_definition(width: int, seed: int) -> None:
    mx.random.seed(seed)
    decays, inputs, state = uniform(0, 1, ROWS, width, 3), normal(ROWS, width, 3), normal(ROWS, 3)
    got, wanted = linear_scan(decays, inputs, state), definitions.linear_scan(decays, inputs, state)
    assert float(mx.abs(got - wanted).max()) < 1e-5
