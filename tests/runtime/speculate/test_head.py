"""Draft heads inside the target: what they compute, and that they keep up with what happens to rows."""

from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.device import device
from runtime.loaded import LoadedModel
from runtime.loading.forecast import check_weights
from runtime.loading.load import load_model
from runtime.speculate import head as head_room
from runtime.speculate.head import HeadDrafter
from runtime.step import Inputs, Step
from tests.support.bench import Action, Bench, actions_of
from tests.support.checkpoints import random_state, write_checkpoint
from tests.support.heads import FOLDER, HeadReference
from tests.support.oneshot import build_one_shot
from tests.support.parity import Reference, bar


@pytest.fixture(scope="module", params=sorted(path.stem for path in FOLDER.glob("*.json")))
def reference(request: pytest.FixtureRequest) -> HeadReference:
    return HeadReference(request.param)


@pytest.fixture(scope="module")
def target(reference: HeadReference, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return reference.load(tmp_path_factory.mktemp(reference.name))


@pytest.fixture(scope="module")
def glm(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return HeadReference("glm4_moe").load(tmp_path_factory.mktemp("glm"))


def hidden_of(target: LoadedModel, ids: list[int]) -> mx.array:
    """The target's hidden states [1, T, D], without memory."""
    step = Step(starts=(0,), counts=(len(ids),), inputs=Inputs(mx.array([ids])))
    return target.network(step, build_one_shot(target.described.layout))


def drafts_of(target: LoadedModel, ids: list[int], depth: int) -> list[int]:
    """Greedy drafts after `ids`, everything computed anew for each of them."""
    assert target.head is not None
    hidden, tokens = hidden_of(target, ids[:-1]), list(ids[1:])
    for _ in range(depth):
        embedded = target.network.model.embed_tokens(mx.array([tokens]))
        step = Step(starts=(0,), counts=(len(tokens),), inputs=Inputs(embeddings=embedded))
        out = target.head.network(step, build_one_shot(target.head.layout), hidden)
        tokens.append(int(mx.argmax(target.network.logits(out[:, -1])[0]).item()))
        hidden = mx.concatenate([hidden, out[:, -1:]], axis=1)
    return tokens[len(ids) - 1 :]


def test_logits_at_every_position_are_those_of_transformers(
    reference: HeadReference, target: LoadedModel
) -> None:
    assert target.head is not None
    ids = [int(token) for token in reference.answers["ids"]]
    embedded = target.network.model.embed_tokens(mx.array([ids[1:]]))
    step = Step(starts=(0,), counts=(len(ids) - 1,), inputs=Inputs(embeddings=embedded))
    hidden = hidden_of(target, ids)[:, :-1]
    out = target.head.network(step, build_one_shot(target.head.layout), hidden)
    both = 2 * bar(Reference(reference.name))  # the head adds its rounding to the target's
    assert reference.error(np.array(target.network.logits(out)[0])) < both


def test_the_file_passes_the_check_of_create(reference: HeadReference) -> None:
    stored = {name: ("F32", tuple(shape)) for name, shape in reference.record["tensors"].items()}
    assert check_weights(reference.record["config"], stored) == []


def test_a_head_is_loaded_when_asked_for_only(reference: HeadReference, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, reference.record["config"], reference.record["tensors"])
    assert load_model(reference.record["config"], [folder / "model.safetensors"]).head is None


def test_a_file_without_a_head_loads_without(reference: HeadReference, tmp_path: Path) -> None:
    layers = reference.record["config"]["num_hidden_layers"]
    own = {
        name: shape
        for name, shape in reference.record["tensors"].items()
        if not name.startswith(("mtp.", "model.mtp_layers.", f"model.layers.{layers}."))
    }
    folder = write_checkpoint(tmp_path, reference.record["config"], own)
    loaded = load_model(reference.record["config"], [folder / "model.safetensors"], with_head=True)
    assert loaded.head is None
    assert loaded.notes == ()


def test_a_head_that_does_not_fit_is_left_out_with_a_note(reference: HeadReference, tmp_path: Path) -> None:
    tensors = dict(reference.record["tensors"])
    projections = ".eh_proj.weight", "mtp.fc.weight", ".input_proj.weight"
    name = next(name for name in tensors if name.endswith(projections))
    tensors[name] = [64, 64]
    folder = write_checkpoint(tmp_path, reference.record["config"], tensors)
    loaded = load_model(reference.record["config"], [folder / "model.safetensors"], with_head=True)
    assert loaded.head is None
    assert "the draft head is not used" in loaded.notes[0]


def test_a_quantized_head(tmp_path: Path) -> None:
    """Packed like any other matrix; on a processor without kernels it is expanded with the target."""
    record = HeadReference("qwen3_5").record
    state = {name: mx.array(array) for name, array in random_state(record["tensors"]).items()}
    for stem in ("mtp.fc", "mtp.layers.0.mlp.down_proj", "mtp.layers.0.self_attn.q_proj"):
        packed = mx.quantize(state.pop(f"{stem}.weight"), 32, 4)
        state |= dict(zip((f"{stem}.weight", f"{stem}.scales", f"{stem}.biases"), packed, strict=True))
    mx.save_safetensors(str(tmp_path / "model.safetensors"), state)
    config = {**record["config"], "quantization": {"bits": 4, "group_size": 32}}
    packed_model = load_model(config, [tmp_path / "model.safetensors"], with_head=True)
    expanding = replace(device(), fast_quantized=False, as_stored=False)
    plain_model = load_model(config, [tmp_path / "model.safetensors"], on=expanding, with_head=True)
    assert packed_model.head is not None
    assert plain_model.head is not None
    assert packed_model.head.weight_bytes < plain_model.head.weight_bytes
    ids = [(7 * i) % 150 + 3 for i in range(20)]
    assert drafts_of(packed_model, ids, 1) == drafts_of(plain_model, ids, 1)


def bench_of(target: LoadedModel, rows: int) -> Bench:
    return Bench(target, lambda _: HeadDrafter(target, limit=5), rows)


ACTIONS = actions_of(range(1, 13), range(1, 6), range(1, 5))


@settings(max_examples=15)
@given(actions=st.lists(ACTIONS, min_size=4, max_size=12))
def test_drafts_are_those_of_a_head_that_read_everything_anew(
    glm: LoadedModel, actions: list[Action]
) -> None:
    bench = bench_of(glm, rows=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head_room, "FLUSH", 6)
        for ids, depth, drafted in bench.play([("admit", 5, 5), *actions]):
            assert drafted == drafts_of(glm, ids, depth)


def test_what_waits_is_bounded(glm: LoadedModel) -> None:
    bench = bench_of(glm, rows=1)
    bench.admit(3 * head_room.FLUSH // 2 + 5, 64)
    assert isinstance(bench.drafter, HeadDrafter)
    line = bench.drafter._lines[0]  # pyright: ignore[reportPrivateUsage] -- what it holds is the claim
    assert line.waiting <= head_room.FLUSH + 64


def test_a_row_whose_past_was_not_observed_drafts_from_what_it_saw(glm: LoadedModel) -> None:
    """As after a hit in a prefix store: its drafts may differ, and everything keeps working."""
    bench = bench_of(glm, rows=1)
    ids = [bench.token() for _ in range(12)]
    step = Step(starts=(0,), counts=(8,), inputs=Inputs(mx.array([ids[:8]])))
    bench.memory.prepare(step)
    bench.target.network(step, bench.memory)
    bench.memory.commit(step, (8,))
    bench.step([ids[8:]], [8], [4])
    bench.ids.append([*ids, bench.token()])
    for depth in (3, 1, 4):
        assert len(bench.speculate(depth, 1)[0]) == depth
