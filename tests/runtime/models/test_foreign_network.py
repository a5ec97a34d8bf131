"""A model class of somebody else over our layer memory gives what it gives without any cache."""

import copy
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from runtime.cache.build import LayerMemory, build_memory
from runtime.cache.layout import Full, Rotating
from runtime.errors import NotSupported, UnsupportedModel
from runtime.models.foreign.network import ForeignNetwork
from runtime.step import Inputs, Step
from tests.support import foreign
from tests.support.foreign import describe_novel, novel

KINDS = {
    "full": ["full", "full"],
    "window": ["full", "sliding", "sliding"],
    "both": ["full", "sliding", "full"],
}
IDS = np.random.default_rng(5).integers(0, 40, 48)
CLOSE = 1e-4


@pytest.fixture(params=[*KINDS])
def layers(request: pytest.FixtureRequest) -> list[str]:
    return KINDS[request.param]


class Running:
    """A network with weights, its memory, and what it should say."""

    def __init__(self, layers: list[str], *, rows: int = 1, ragged: bool = True) -> None:
        mx.random.seed(3)
        architecture = novel(ragged=ragged)
        self.described = describe_novel(architecture, layer_types=layers)
        self.network: ForeignNetwork = architecture.build(self.described.config)
        weights = {
            name: mx.random.normal(array.shape) * 0.4 for name, array in _flat(self.network.parameters())
        }
        self.network.load_weights(list(weights.items()))
        reference = foreign.Model(foreign.ModelArgs.from_dict({**foreign.CONFIG, "layer_types": layers}))
        reference.load_weights(list(weights.items()))
        self.expected = np.array(reference(mx.array(IDS)[None])[0])
        self.memory: LayerMemory = build_memory(self.described.layout, rows=rows, slack=6)

    def read(
        self, parts: list[Any], starts: tuple[int, ...], kept: tuple[int, ...] | None = None, first: int = 0
    ) -> np.ndarray:
        """One step of rows that bring `parts`; logits [B, L, V]."""
        counts = tuple(map(len, parts))
        padded = np.zeros((len(parts), max(counts)), np.int32)
        for row, part in enumerate(parts):
            padded[row, : len(part)] = part
        step = Step(starts, counts, first, inputs=Inputs(mx.array(padded)))
        self.memory.prepare(step)
        logits = self.network.logits(self.network(step, self.memory))
        found = np.array(logits)
        self.memory.commit(step, counts if kept is None else kept)
        return found


def _flat(tree: Any) -> list[tuple[str, mx.array]]:
    from mlx.utils import tree_flatten

    return tree_flatten(tree)


def _close(got: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(got, wanted, atol=CLOSE * wanted.std(), rtol=0)


@pytest.mark.parametrize("cuts", [[48], [1], [7, 1, 20, 1, 3]])
def test_any_way_of_cutting_gives_the_same(layers: list[str], cuts: list[int]) -> None:
    running, at, turn = Running(layers), 0, 0
    while at < len(IDS):
        part = IDS[at : at + cuts[min(turn, len(cuts) - 1)]]
        _close(running.read([part], (at,))[0], running.expected[at : at + len(part)])
        at, turn = at + len(part), turn + 1


@pytest.mark.parametrize("ragged", [True, False])
def test_rows_at_different_positions_do_not_disturb_each_other(layers: list[str], ragged: bool) -> None:
    running = Running(layers, rows=3, ragged=ragged)
    assert running.described.config.form.ragged is ragged
    lengths = (20, 3, 11)
    first = running.read([IDS[:length] for length in lengths], (0, 0, 0))
    for row, length in enumerate(lengths):
        _close(first[row, :length], running.expected[:length])
    for widths in ((1, 1, 1), (2, 5, 1), (1, 1, 1)):
        ends = tuple(length + width for length, width in zip(lengths, widths, strict=True))
        parts = [IDS[start:end] for start, end in zip(lengths, ends, strict=True)]
        got = running.read(parts, lengths)
        for row, (start, end) in enumerate(zip(lengths, ends, strict=True)):
            _close(got[row, : end - start], running.expected[start:end])
        lengths = ends


def test_a_row_may_begin_beside_others_that_go_on(layers: list[str]) -> None:
    running = Running(layers, rows=2)
    running.read([IDS[:9]], (0,))
    got = running.read([IDS[9:12], IDS[:3]], (9, 0))
    _close(got[0], running.expected[9:12])
    _close(got[1], running.expected[:3])


def test_what_is_not_kept_never_happened(layers: list[str]) -> None:
    running = Running(layers, rows=3)
    starts = (12, 9, 15)
    for row, start in enumerate(starts):
        running.read([IDS[:start]], (0,), first=row)
    wrong = np.array([7, 8], np.int32)
    offered = [np.concatenate([IDS[12:15], wrong]), IDS[9:13], wrong]
    got = running.read(offered, starts, kept=(3, 4, 0))
    _close(got[0, :3], running.expected[12:15])
    starts = (15, 13, 15)
    for turn in range(3):
        places = [start + turn for start in starts]
        got = running.read([IDS[place : place + 1] for place in places], tuple(places))
        _close(got[:, 0], running.expected[places])


def test_a_row_goes_on_from_a_page(layers: list[str]) -> None:
    running = Running(layers, rows=2)
    running.read([IDS[:14]], (0,))
    page = running.memory.snapshot(0, 0)
    running.memory.restore(1, [page], 14)
    _close(running.read([IDS[14:20]], (14,), first=1)[0], running.expected[14:20])


def test_the_layout_is_known_without_weights() -> None:
    described = describe_novel(novel(), layer_types=["full", "sliding"])
    assert described.layout == (Full(2, 8), Rotating(2, 8, 5))
    assert (described.vocab_size, described.hidden_size, described.context_length) == (40, 16, 256)


def test_hidden_states_are_what_stands_before_the_head() -> None:
    running = Running(KINDS["full"])
    assert running.described.config.form.trunk == ("model",)
    step = Step((0,), (4,), inputs=Inputs(mx.array(IDS[:4])[None]))
    running.memory.prepare(step)
    hidden = running.network(step, running.memory)
    assert hidden.shape == (1, 4, 16)
    _close(np.array(running.network.logits(hidden[:, -1])), running.expected[3:4])


def test_only_ids_can_be_brought() -> None:
    """mlx-lm's classes have no way in for anything else."""
    running = Running(KINDS["full"])
    ids = mx.array(IDS[:4])[None]
    for inputs in (Inputs(ids, embeddings=mx.zeros((1, 4, 16))), Inputs(embeddings=mx.zeros((1, 4, 16)))):
        with pytest.raises(NotSupported, match="takes ids only"):
            running.network(Step((0,), (4,), inputs=inputs), running.memory)
    with pytest.raises(NotSupported, match="takes ids only"):
        running.network.embed(ids)
    with pytest.raises(NotSupported, match="counts them itself"):
        running.network(Step((0,), (4,), inputs=Inputs(ids, positions=ids)), running.memory)


class Headed(foreign.Model):
    """What comes after its layers needs the tokens too, so it cannot be cut."""

    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        return super().__call__(inputs, cache) + inputs[..., None]


def test_a_model_that_cannot_be_cut_gives_its_logits_as_hidden_states() -> None:
    described = describe_novel(novel(Headed))
    assert described.config.form.trunk == ()
    assert described.hidden_size == described.vocab_size


class Strange(foreign.Model):
    def make_cache(self) -> list[Any]:
        return [foreign.StrangeCache() for _ in self.layers]


class Twice(foreign.Model):
    """Its first layer runs once more."""

    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        x = self.model(inputs, cache)
        return self.model.embed_tokens.as_linear(self.layers[0](x, None if cache is None else cache[0]))


class Idle(foreign.Model):
    """Its first layer is never run."""

    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        view = copy.copy(self.model)
        view.layers = self.layers[1:]
        return view.embed_tokens.as_linear(view(inputs, None if cache is None else cache[1:]))


class Curious(foreign.Model):
    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        assert cache is None or cache[0].secret
        return super().__call__(inputs, cache)


class Wider(foreign.Model):
    def make_cache(self) -> list[Any]:
        return [foreign.KVCache(), foreign.RotatingKVCache(3), foreign.RotatingKVCache(3)]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Strange, "StrangeCache"),
        (Twice, "writes twice"),
        (Idle, "layer 0 writes nothing"),
        (Curious, r"its own code fails on it \(AttributeError\)"),
        (Wider, "masks show 5 tokens, and it keeps 3"),
    ],
)
def test_what_layer_memory_cannot_carry_is_refused(model: type[nn.Module], words: str) -> None:
    with pytest.raises(UnsupportedModel, match=words):
        describe_novel(novel(model))
