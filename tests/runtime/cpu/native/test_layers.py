"""Layers as few nodes have the bits of the same layers called one by one."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.attention import KVCache
from runtime.cache.layout import Full, Rotating
from runtime.cpu import native

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

from runtime.cpu.native import layers as native_layers
from runtime.cpu.native.route import routing_of
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.nn.attention.self_attention import HeadNormAttention, SelfAttention
from runtime.nn.feed_forward.mlp import FusedGatedMLP, GatedMLP
from runtime.nn.feed_forward.moe import GatedSharedMoE, SharedMoE, SoftmaxMoE
from runtime.nn.feed_forward.router import RuledRouter
from runtime.nn.norm import LayerNorm, RMSNorm
from runtime.nn.operations import ops
from runtime.nn.residual.block import Parallel, PostNorm, PreNorm, Sandwich
from runtime.parts.feed_forward import Routing
from runtime.parts.streams import AppendInput
from runtime.step import Step
from tests.runtime.cpu.native.rows import bits, computing
from tests.runtime.cpu.native.test_attention_nodes import ROPE, Shape, packed

CPU = ops.COLUMNS["cpu"]
KINDS: list[Callable[[], Any]] = [
    lambda: PreNorm(SelfAttention(Shape(), ROPE), GatedMLP(64, 96), lambda: RMSNorm(64)),
    lambda: PreNorm(FusedAttention(Shape(), None), FusedGatedMLP(64, 96), lambda: LayerNorm(64)),
    lambda: PostNorm(SelfAttention(Shape(), ROPE), GatedMLP(64, 96), lambda: RMSNorm(64)),
    lambda: Sandwich(
        HeadNormAttention(Shape(), ROPE, lambda _heads: RMSNorm(32)), GatedMLP(64, 96), lambda: RMSNorm(64)
    ),
]


class Halved(PreNorm):
    """Overrides the call alone, so what it says of its sublayers must not be used."""

    def __call__(self, x: mx.array, step: Step, cache: Any) -> mx.array:
        return super().__call__(x, step, cache) / 2


@pytest.fixture(autouse=True)
def _by_kernels() -> Iterator[None]:
    with ops.using("cpu"):
        yield


def trunk() -> list[Any]:
    """Every kind, one that says nothing, and two more."""
    made = [kind() for kind in KINDS]
    made.append(Halved(SelfAttention(Shape(), ROPE), GatedMLP(64, 96), lambda: RMSNorm(64)))
    made += [KINDS[0](), KINDS[3]()]
    return [packed(layer, 10 * i) for i, layer in enumerate(made)]


def memory(layers: Sequence[Any]) -> list[KVCache]:
    return [
        KVCache(Rotating(2, 32, 8) if i % 3 == 1 else Full(2, 32), rows=2, slack=2, grain=8)
        for i in range(len(layers))
    ]


def one_by_one(layers: Sequence[Any], x: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
    for layer, cache in zip(layers, caches, strict=True):
        x = layer(x, step, cache)
    return x


def read(through: Any, layers: Sequence[Any], caches: Sequence[KVCache]) -> list[np.ndarray]:
    """Two rows, read in steps of which one is too wide for the windows' memory."""
    given, at, answers = mx.random.normal((2, 64, 64), key=mx.random.key(3)), 0, []
    for width in (3, 1, 1, 30, 1, 2):
        step = Step((at, at), (width, width))
        answers.append(bits(through(layers, given[:, at : at + width], step, caches)))
        for cache in caches:
            cache.commit(step, step.counts)
        at += width
    return answers


def test_as_one_by_one() -> None:
    layers = trunk()
    wanted = read(one_by_one, layers, memory(layers))
    got = read(CPU.layers, layers, memory(layers))
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


def routed(routing: Routing, shared: int) -> SharedMoE:
    router = RuledRouter(64, 6, routing, corrected=True)
    return SharedMoE(64, 96, 6, router, shared=shared, activation="gelu_new")


MIXTURES: dict[str, Callable[[], Any]] = {
    "normalized": lambda: SoftmaxMoE(64, 96, 5, 2, normalize=True),
    "as they are": lambda: SoftmaxMoE(64, 96, 5, 2, normalize=False),
    "shared, gated": lambda: GatedSharedMoE(64, 96, 5, 2, shared=32, normalize=True),
    "corrected": lambda: routed(Routing("sigmoid", 3, normalize=True, scale=1.5), 0),
    "shared, in groups": lambda: routed(Routing("sigmoid", 2, groups=3, top_groups=2, normalize=True), 160),
    "shared, a least sum": lambda: routed(Routing("softmax", 2, normalize=True, least=0.6), 32),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_layers_that_ask_experts_have_the_bits_of_their_parts(name: str, tmp_path: Any) -> None:
    mixture = MIXTURES[name]
    layers = [
        packed(PreNorm(SelfAttention(Shape(), ROPE), mixture(), lambda: RMSNorm(64)), 1),
        packed(Sandwich(SelfAttention(Shape(), ROPE), mixture(), lambda: RMSNorm(64)), 2),
        packed(KINDS[0](), 3),
        packed(PreNorm(SelfAttention(Shape(), ROPE), mixture(), lambda: RMSNorm(64)), 4),
    ]
    path = tmp_path / "graph.dot"
    step = Step((0, 0), (2, 2))
    mx.export_to_dot(str(path), CPU.layers(layers, mx.ones((2, 2, 64)), step, memory(layers)))
    assert path.read_text().count("ModelkitSublayers") == 3, "three layers, and the last one's two sublayers"
    wanted = read(one_by_one, layers, memory(layers))
    for column in native.kernels.columns():
        for threads in (1, 3):
            with computing(column, threads):
                got = read(CPU.layers, layers, memory(layers))
            assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True)), (column, threads)


@pytest.mark.parametrize("most", [16, 1])
def test_sublayers_that_read_the_same(most: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_layers, "MOST", most)

    def parallel(norm: Any, mlp: Any) -> Any:
        return Parallel(SelfAttention(Shape(), ROPE), mlp, lambda: norm(64))

    layers = [
        packed(parallel(RMSNorm, GatedMLP(64, 96)), 1),
        packed(parallel(LayerNorm, FusedGatedMLP(64, 96)), 20),
        packed(KINDS[0](), 40),
        packed(parallel(RMSNorm, MIXTURES["shared, gated"]()), 60),
        packed(KINDS[0](), 80),
    ]
    path = tmp_path / "graph.dot"
    step = Step((0, 0), (2, 2))
    mx.export_to_dot(str(path), CPU.layers(layers, mx.ones((2, 2, 64)), step, memory(layers)))
    # The runs of the first four layers, and the last one's two sublayers.
    assert path.read_text().count("ModelkitSublayers") == -(-4 // most) + 2
    for some in (layers, layers[:2]):  # the last may be one of them
        wanted = read(one_by_one, some, memory(some))
        got = read(CPU.layers, some, memory(some))
        assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


class Sharing(PreNorm):
    share = 0.3

    def __call__(self, x: mx.array, step: Step, cache: Any) -> mx.array:
        x = x + self.self_attn(self.input_layernorm(x), step, cache) * self.share
        return x + self.mlp(self.post_attention_layernorm(x), step) * self.share

    def sublayers(self) -> tuple[Any, Any]:
        return super().sublayers()


def test_shares_of_answers() -> None:
    feeds = [lambda: GatedMLP(64, 96), MIXTURES["shared, gated"], lambda: FusedGatedMLP(64, 96)]
    layers = [
        packed(Sharing(SelfAttention(Shape(), ROPE), feed(), lambda: RMSNorm(64)), 10 * i)
        for i, feed in enumerate(feeds)
    ]
    assert [(run.first, len(run.layers)) for run in native_layers.runs_of(layers, whole=False)] == [
        (0, 2),
        (2, 1),
    ]
    wanted = read(one_by_one, layers, memory(layers))
    got = read(CPU.layers, layers, memory(layers))
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_a_mixture_that_overrides_the_call_alone_says_nothing() -> None:
    class Halving(GatedSharedMoE):
        def __call__(self, x: mx.array, step: Step) -> mx.array:
            return super().__call__(x, step) / 2

    class Twice(RuledRouter):
        def __call__(self, x: mx.array, step: Step) -> Any:
            return super().__call__(x * 2, step)

    twice = SharedMoE(64, 96, 5, Twice(64, 5, Routing("best", 2)), shared=0)
    for mixture in (Halving(64, 96, 5, 2, shared=32, normalize=True), twice):
        assert PreNorm(SelfAttention(Shape(), ROPE), mixture, lambda: RMSNorm(64)).sublayer_parts() is None


def test_what_asking_experts_takes() -> None:
    kernels: Any = native.kernels

    def matrix(*shape: int) -> Any:
        return kernels.Matrix(mx.zeros(shape), None, None, None)

    experts = [matrix(5, 96, 64)], 0, 0.0, 0.0, matrix(5, 64, 96)
    routing = routing_of(kernels, Routing("best", 2))
    shared, gate = kernels.Feeding([matrix(32, 64)], False, 0, matrix(64, 32)), matrix(1, 64)
    kernels.mixture(None, matrix(5, 64), routing, *experts, shared, gate, None)
    norm, layer_norm, narrow = (
        kernels.Norm(*how, None, 1e-6)
        for how in ((False, mx.ones((64,))), (True, None), (False, mx.ones((32,))))
    )
    kernels.mixture(
        None, matrix(5, 64), routing, *experts, shared, None, None, (norm, 0.5), norm, layer_norm, norm
    )
    for always, opened, *rest in (
        (shared, gate, (layer_norm, 1.0)),
        (shared, gate, (narrow, 1.0)),
        (shared, gate, None, layer_norm),
        (shared, gate, None, narrow),
        (shared, gate, None, None, narrow),
        (shared, gate, None, None, None, norm),
        (shared, None, None, None, None, layer_norm),
        (None, None, None, None, norm),
    ):
        with pytest.raises(ValueError, match=r"norm|gate"):
            kernels.mixture(None, matrix(5, 64), routing, *experts, always, opened, None, *rest)
    for router, always, opened in (
        (matrix(4, 64), shared, gate),
        (matrix(5, 64), None, gate),
        (matrix(5, 64), shared, matrix(2, 64)),
        (matrix(5, 64), shared, matrix(1, 32)),
        (matrix(5, 64), kernels.Feeding([matrix(64, 32)], False, 0, matrix(32, 64)), None),
    ):
        with pytest.raises(ValueError, match=r"must|gate"):
            kernels.mixture(None, router, routing, *experts, always, opened, None)


def test_which_layers_run_together(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = trunk()

    def runs(*, whole: bool) -> list[tuple[int, int, bool]]:
        found = native_layers.runs_of(layers, whole)
        return [(run.first, len(run.layers), run.apart) for run in found]

    assert runs(whole=False) == [(0, 4, False), (5, 1, False), (6, 1, True)]
    assert runs(whole=True) == [(0, 4, False), (5, 2, False)]
    monkeypatch.setattr(native_layers, "MOST", 3)
    assert runs(whole=False) == [(0, 3, False), (3, 1, False), (5, 1, False), (6, 1, True)]


@pytest.mark.parametrize(("width", "nodes"), [(1, 1), (2, 3)])
def test_a_run_is_one_node(width: int, nodes: int, tmp_path: Any) -> None:
    """Where a prompt is read: three layers, and the last one's two sublayers."""
    layers = [packed(KINDS[0](), 10 * i) for i in range(4)]
    mx.eval([layer.parameters() for layer in layers])
    x, caches = mx.ones((2, width, 64)), memory(layers)
    mx.eval(x)
    path = tmp_path / "graph.dot"
    mx.export_to_dot(str(path), CPU.layers(layers, x, Step((0, 0), (width, width)), caches))
    assert path.read_text().count("ModelkitSublayers") == nodes
    assert path.read_text().count("Modelkit") == nodes + 1, "a table of turns"


def test_a_layer_that_is_replaced_is_noticed() -> None:
    layers = trunk()
    caches = memory(layers)
    read(CPU.layers, layers, caches)
    layers[1].mlp = packed(FusedGatedMLP(64, 96), 77)
    layers[2].self_attn.k_proj.scales = layers[2].self_attn.k_proj.scales * 2
    layers[3] = packed(KINDS[2](), 91)
    wanted = read(one_by_one, layers, memory(layers))
    for cache in caches:
        cache.clear(0), cache.clear(1)
    got = read(CPU.layers, layers, caches)
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_memory_of_another_form_is_noticed() -> None:
    layers = trunk()
    caches = memory(layers)
    read(CPU.layers, layers, caches)
    for cache in caches:
        cache.clear(0), cache.clear(1)
    caches[2] = KVCache(Full(2, 32), rows=2, kept_format="q8")
    got = read(CPU.layers, layers, caches)
    others = memory(layers)
    others[2] = KVCache(Full(2, 32), rows=2, kept_format="q8")
    wanted = read(one_by_one, layers, others)
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_a_run_of_what_is_given_alone_goes_step_by_step() -> None:
    run = native_layers.Run.of(0, [(AppendInput(8),)], apart=False)
    assert (
        native_layers.chains_of(native.kernels, run, [native_layers.LayerInput(mx.zeros([1, 1, 8]))]) is None
    )


def test_a_chain_asks_for_what_it_needs() -> None:
    kernels = native.kernels

    def matrix(rows: int, columns: int) -> Any:
        return kernels.Matrix(mx.zeros((rows, columns)), None, None, None)

    part = kernels.feed_forward(None, kernels.Feeding([matrix(96, 64)], False, 0, matrix(64, 96)), None)
    other = kernels.feed_forward(None, kernels.Feeding([matrix(96, 32)], False, 0, matrix(32, 96)), None)
    x = mx.zeros((1, 1, 64))
    for call in (
        lambda: kernels.Chain([]),
        lambda: kernels.Chain([part, other])(x),
        lambda: kernels.Chain([part])(x, [0], [1], 0, [(None, None, [x], [0], False)]),
        lambda: kernels.Chain([part])(x.astype(mx.float16)),
    ):
        with pytest.raises(ValueError, match="must"):
            call()
