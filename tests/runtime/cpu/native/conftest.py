"""What all tests of the kernels share: they run on the processor, by its column."""

from collections.abc import Iterator

import mlx.core as mx
import pytest

from runtime.cpu import native


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """On the processor; and what a test has switched is switched back."""
    kernels = native.kernels
    with mx.stream(mx.cpu):
        if kernels is None:
            yield
            return
        column, threads, activations = kernels.column(), kernels.threads(), kernels.activations()
        yield
    kernels.use_column(column)
    kernels.set_threads(threads)
    kernels.use_activations(activations)
