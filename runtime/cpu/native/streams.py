"""Residual streams by the kernels, for float32; whatever else is asked goes the other way."""

import math
from collections.abc import Callable
from typing import Any

import mlx.core as mx

MOST = 64
"""Streams (src/streams.h)."""


def table(kernels: Any, otherwise: Any) -> dict[str, Callable[..., mx.array]]:
    def mix_streams(streams: mx.array, by: mx.array) -> mx.array:
        count = math.isqrt(by.shape[-1])
        if _takes(count, streams, by):
            return kernels.mix_streams(streams, by, count)
        return otherwise.mix_streams(streams, by)

    def correct_streams(streams: mx.array, answer: mx.array, by: mx.array, place: int) -> mx.array:
        if _takes(by.shape[-1], streams, answer, by):
            return kernels.correct_streams(streams, answer, by, place)
        return otherwise.correct_streams(streams, answer, by, place)

    def join_streams(streams: mx.array, answer: mx.array) -> mx.array:
        if _takes(streams.shape[-1] // answer.shape[-1], streams, answer):
            return kernels.join_streams(streams, answer)
        return otherwise.join_streams(streams, answer)

    return {"mix_streams": mix_streams, "correct_streams": correct_streams, "join_streams": join_streams}


def _takes(count: int, *arrays: mx.array) -> bool:
    return count <= MOST and all(array.dtype == mx.float32 for array in arrays)
