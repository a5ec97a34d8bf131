"""Nodes end on MLX's threads, and wait for nobody there: the interpreter may be waiting for them."""

import subprocess
import sys

import pytest

from runtime.cpu import native

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

PROGRAM = """
import sys
import mlx.core as mx
from runtime.cpu.native import kernels

mx.set_default_device(mx.cpu)
x, y = mx.random.normal((2, 1, 64)), mx.random.normal((2, 1, 32))
mx.eval(x, y)
draws = kernels.Draws([1, 2], [1.0, 1.0], [0, 0], [0.9, 0.9], [-5.0, -5.0], [1.0, 1.0])
members = kernels.Members([[(0, 1.0)], []])
narrow = mx.random.normal((1, 64, 4)), mx.random.normal((1, 1, 4, 32))
mx.eval(*narrow)
pairs = kernels.Pairs(64, 32, *narrow, None, None, None, [0])
nodes = {
    "draw": lambda: kernels.draw(x, draws, [3, 4]),
    "add_pairs": lambda: kernels.add_pairs(x, y, pairs, members),
}
for _ in range(300):
    mx.async_eval(nodes[sys.argv[1]]())
    mx.clear_cache()  # it waits for MLX's threads, and keeps the interpreter meanwhile
"""


@pytest.mark.parametrize("node", ["draw", "add_pairs"])
def test_no_node_waits_for_the_interpreter_where_it_ends(node: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, node], timeout=60, check=False)
    assert done.returncode == 0
