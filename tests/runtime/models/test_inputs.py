"""What a step brings: ids, embeddings in their place, positions of its own."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.build import build_memory
from runtime.cpu import native
from runtime.errors import NotSupported
from runtime.loaded import LoadedModel
from runtime.step import Inputs, Step
from tests.support.parity import Reference, described

NEEDS_IDS = {"deepseek_v4", "gemma3n", "gemma4_text", "longcat_ngram", "qwen4_exp"}
"""They look ids up in layers, too."""

WITHOUT_POSITIONS = {
    "bloom",
    "deepseek_v4",
    "falcon_mamba",
    "falcon_rw",
    "glm5_next",
    "jamba",
    "kimi_k3",
    "kimi_linear",
    "mamba",
    "mpt",
    "mt5",
    "nemotron_h",
    "olmo_hybrid",
    "granitemoehybrid",
    "qwen4_exp",
    "inkling_plain",
    "inkling2_loop_text",
    "rwkv",
    *("jais", "rwkv5", "rwkv6", "rwkv7", "xlstm", "zamba"),
}
"""No layer of theirs goes by positions, or it counts tokens (T5, ALiBi, Qwen4's indexer)."""

ABSOLUTE = {
    *("bart", "beam", "dory", "gpt2", "gpt_bigcode", "gpt_neo", "hunyuan", "hunyuan_large"),
    *("iquest_loop", "llama4"),
    "ministral3",
    "mistral4",
    "t5gemma2",
    *("mistral_large4", "openai_gpt", "opt", "opt_350m", "recurrent_gemma", "xglm"),
}
"""Their answers depend on where a text begins, not only on how far its tokens are apart."""

LATER = {"beam": 1 << 14}
"""How much later it begins, where it takes more than 50 tokens to show."""

TOKENS, CUT = 12, 7
ROUNDING = 0 if native.kernels else 1e-5
"""Without kernels a product's bits hang on how many rows it has (OPT's embeddings pass one)."""


def one_of_each() -> list[str]:
    """The first reference of every family's file."""
    found: dict[object, str] = {}
    for name in Reference.names():
        found.setdefault(described(name).family, name)
    return sorted({*found.values(), *NEEDS_IDS, *WITHOUT_POSITIONS, *ABSOLUTE})


@pytest.fixture(scope="module", params=one_of_each())
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def model(name: str) -> LoadedModel:
    return Reference(name).made()


@pytest.fixture(scope="module")
def ids(name: str) -> mx.array:
    return mx.array(Reference(name).answers["ids"][:TOKENS], dtype=mx.int32)[None]


@pytest.fixture(scope="module")
def wanted(model: LoadedModel, ids: mx.array) -> np.ndarray:
    return run(model, Inputs(ids))


def run(model: LoadedModel, inputs: Inputs, cut: int = CUT) -> np.ndarray:
    """Hidden states [T, D] of one row that is read in two steps, or in one."""
    memory, out = build_memory(model.described.layout, dtype=model.dtype), []
    for start, stop in ((0, cut), (cut, TOKENS)):
        if start == stop:
            continue
        given = (inputs.ids, inputs.embeddings, inputs.positions)
        part = Inputs(*(None if array is None else array[:, start:stop] for array in given))
        step = Step((start,), (stop - start,), inputs=part)
        memory.prepare(step)
        out.append(np.array(model.network(step, memory)[0].astype(mx.float32)))
        memory.commit(step, step.counts)
    return np.concatenate(out)


def apart(got: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(got - wanted).max() / wanted.std())


def test_embeddings_stand_for_their_ids(
    name: str, model: LoadedModel, ids: mx.array, wanted: np.ndarray
) -> None:
    embedded = model.network.embed(ids)
    if name in NEEDS_IDS:
        with pytest.raises(NotSupported, match="give ids beside"):
            run(model, Inputs(embeddings=embedded))
        assert apart(run(model, Inputs(ids, embedded)), wanted) <= ROUNDING
    else:
        assert apart(run(model, Inputs(embeddings=embedded)), wanted) <= ROUNDING


def test_other_embeddings_give_other_answers(model: LoadedModel, ids: mx.array, wanted: np.ndarray) -> None:
    embedded = model.network.embed(ids)
    assert apart(run(model, Inputs(ids, embedded[:, ::-1])), wanted) > 0.01


def test_positions_act(name: str, model: LoadedModel, ids: mx.array, wanted: np.ndarray) -> None:
    indices = mx.arange(TOKENS, dtype=mx.int32)[None]
    if name in WITHOUT_POSITIONS:
        with pytest.raises(NotSupported, match="at which positions"):
            run(model, Inputs(ids, positions=indices))
        return
    assert apart(run(model, Inputs(ids, positions=indices)), wanted) < 1e-4
    later = apart(run(model, Inputs(ids, positions=indices + LATER.get(name, 50))), wanted)
    assert (later > 0.01) == (name in ABSOLUTE)
    assert later < 1e-3 or name in ABSOLUTE
    gap = Inputs(ids, positions=mx.where(indices < 5, indices, indices + 9))
    got = run(model, gap)
    assert apart(got, wanted) > 0.01
    assert apart(run(model, gap, cut=TOKENS), got) < 1e-3


def test_positions_twice_as_far_apart_are_those_of_a_model_that_halves_them(tmp_path: Path) -> None:
    reference = Reference("llama")
    halved = {**reference.record["config"], "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    plain, other = reference.load(tmp_path / "a"), reference.load(tmp_path / "b", halved)
    ids = mx.array(reference.answers["ids"][:TOKENS], dtype=mx.int32)[None]
    indices = mx.arange(TOKENS, dtype=mx.int32)[None]
    assert apart(run(other, Inputs(ids, positions=2 * indices)), run(plain, Inputs(ids))) < 1e-5


def test_rows_bring_positions_of_their_own(tmp_path: Path) -> None:
    """In a ragged step, beside rows whose positions are their indices."""
    reference = Reference("llama")
    model = reference.load(tmp_path)
    ids = mx.array(reference.answers["ids"][:TOKENS], dtype=mx.int32)[None]
    indices = mx.arange(TOKENS, dtype=mx.int32)[None]
    moved = mx.where(indices < 5, indices, indices + 9)
    both = Inputs(mx.repeat(ids, 2, axis=0), positions=mx.concatenate([moved, indices]))
    memory = build_memory(model.described.layout, rows=2, dtype=model.dtype)
    step = Step((0, 0), (TOKENS, 8), inputs=both)
    memory.prepare(step)
    got = np.array(model.network(step, memory))
    assert apart(got[0], run(model, Inputs(ids, positions=moved))) < 1e-4
    assert apart(got[1, :8], run(model, Inputs(ids))[:8]) < 1e-4


def test_inputs_have_the_shape_of_the_step() -> None:
    with pytest.raises(AssertionError, match=r"\[B, L\]"):
        Step((0, 0), (3, 2), inputs=Inputs(mx.zeros((2, 2), dtype=mx.int32)))
