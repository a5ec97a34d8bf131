"""Recurrences as their modules in `runtime.nn` define them, token by token: what every form is held against.

Inputs, states and answers are those of the functions of the same names there.
"""

import mlx.core as mx


def gated_delta(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    decay: mx.array,
    strength: mx.array,
    state: mx.array,
) -> tuple[mx.array, mx.array]:
    repeats = values.shape[2] // keys.shape[2]
    queries, keys = (mx.repeat(x, repeats, axis=2) for x in (queries, keys))
    outputs: list[mx.array] = []
    for i in range(keys.shape[1]):
        state = mx.exp(decay[:, i])[..., None, None] * state
        held = (state * keys[:, i, :, :, None]).sum(axis=-2)
        wrong = strength[:, i, :, None] * (values[:, i] - held)
        state = state + keys[:, i, :, :, None] * wrong[:, :, None, :]
        outputs.append((state * queries[:, i, :, :, None]).sum(axis=-2))
    return mx.stack(outputs, axis=1), state


def channel_delta(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    decay: mx.array,
    strength: mx.array,
    state: mx.array,
) -> tuple[mx.array, mx.array]:
    outputs: list[mx.array] = []
    for i in range(keys.shape[1]):
        state = mx.exp(decay[:, i])[..., None] * state
        held = (state * keys[:, i, :, :, None]).sum(axis=-2)
        written = strength[:, i, :, None] * (values[:, i] - held)
        state = state + keys[:, i, :, :, None] * written[:, :, None, :]
        outputs.append((state * queries[:, i, :, :, None]).sum(axis=-2))
    return mx.stack(outputs, axis=1), state


def ssd(
    x: mx.array, steps: mx.array, rates: mx.array, inputs: mx.array, outputs: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    repeats = x.shape[2] // inputs.shape[2]
    inputs, outputs = (mx.repeat(part, repeats, axis=2) for part in (inputs, outputs))
    y: list[mx.array] = []
    for i in range(x.shape[1]):
        written = inputs[:, i, :, :, None] * (steps[:, i, :, None] * x[:, i])[:, :, None, :]
        state = mx.exp(steps[:, i] * rates)[..., None, None] * state + written
        y.append((state * outputs[:, i, :, :, None]).sum(axis=-2))
    return mx.stack(y, axis=1), state


def selective_scan(
    x: mx.array, steps: mx.array, rates: mx.array, inputs: mx.array, outputs: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    y: list[mx.array] = []
    for i in range(x.shape[1]):
        written = inputs[:, i, :, None] * (steps[:, i] * x[:, i])[:, None, :]
        state = mx.exp(steps[:, i, None, :] * rates) * state + written
        y.append((state * outputs[:, i, :, None]).sum(axis=-2))
    return mx.stack(y, axis=1), state


def linear_scan(decays: mx.array, inputs: mx.array, state: mx.array) -> mx.array:
    states: list[mx.array] = []
    for i in range(inputs.shape[1]):
        state = decays[:, i] * state + inputs[:, i]
        states.append(state)
    return mx.stack(states, axis=1)
