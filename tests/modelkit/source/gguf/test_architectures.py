"""llama.cpp's architectures in both directions, against what its converter makes of tiny checkpoints."""

import dataclasses
import math
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from modelkit.source.gguf.architectures import NAMES, ROWS
from modelkit.source.gguf.architectures.apply import apply
from modelkit.source.gguf.architectures.moves import Atom, Link, Side
from modelkit.source.gguf.architectures.numbers import as_float32, shortest
from runtime.loading.load import load_model
from runtime.models import find_family
from tests.support import gguf_table
from tests.support.checkpoints import random_state
from tests.support.gguf_digest import digest
from tests.support.gguf_entries import AS_PLAIN, AS_PRODUCTS, FUSED, INEXACT, LOST, MORE, OTHERWISE
from tests.support.gguf_references import (
    GgufReference,
    canonical,
    describe,
    differences,
    export,
    loaded,
    read,
    undone,
)
from tests.support.parity import Reference, full_logits

NAMES_OF_REFERENCES = GgufReference.names()
_KEPT: dict[str, GgufReference] = {}


@pytest.fixture
def reference(request: pytest.FixtureRequest) -> GgufReference:
    return _KEPT.setdefault(request.param, GgufReference(request.param))


each = pytest.mark.parametrize("reference", [n for n in NAMES_OF_REFERENCES if n not in FUSED], indirect=True)


def _same_value(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(_same_value, ours, theirs))
    if type(theirs) is float:
        same = ours == theirs or as_float32(ours) == as_float32(theirs)
        return type(ours) is float and (same or (math.isinf(ours) and ours == theirs))
    return type(ours) is type(theirs) and ours == theirs


def _close(a: Any, b: Any) -> bool:
    """Equal, but that numbers may have been float32 once."""
    if dataclasses.is_dataclass(a) and type(a) is type(b):
        return all(_close(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_close, a, b))
    return a == b or (type(a) is type(b) is float and math.isclose(a, b, rel_tol=1e-7))


def _of_the_model(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """References are without vocabularies."""
    return {key: value for key, value in metadata.items() if not key.startswith("tokenizer.")}


@each
def test_export_is_what_the_converter_writes(reference: GgufReference) -> None:
    exported, stored = reference.exported, reference.record["tensors"]
    assert exported.keys() == stored.keys()
    for name, (shape, wanted) in stored.items():
        assert list(exported[name].shape) == shape, name
        found = digest(name, exported[name])
        if name.startswith(INEXACT) or name.endswith(INEXACT):
            assert np.allclose(found, wanted, rtol=1e-5), name
        else:
            assert found == wanted, name


@each
def test_metadata_is_what_the_converter_writes(reference: GgufReference) -> None:
    if reference.name in AS_PLAIN:
        pytest.skip("a text tower is written as the plain model")
    theirs = reference.metadata
    ours = _of_the_model(reference.described.metadata)
    more = {f"{reference.record['architecture']}.{key}" for key in MORE.get(reference.name, ())}
    assert ours.keys() - more == theirs.keys()
    others = {f"{reference.record['architecture']}.{key}" for key in OTHERWISE.get(reference.name, ())}
    wrong = [key for key in theirs.keys() - others if not _same_value(ours[key], theirs[key])]
    assert not wrong, {key: (ours[key], theirs[key]) for key in wrong}


@each
def test_import_gives_the_checkpoint_back(reference: GgufReference) -> None:
    imported = reference.imported
    wanted_config, wanted = loaded(reference.config, reference.checkpoint)
    config, found = loaded(imported.config, undone(imported, reference.exported))
    assert type(config) is type(wanted_config)
    families = (find_family(each).layout for each in (imported.config, reference.config))
    assert len({*families}) == 1 or reference.name in AS_PLAIN
    fields = [field.name for field in dataclasses.fields(config)]
    differ = {name for name in fields if not _close(getattr(config, name), getattr(wanted_config, name))}
    assert differ == LOST.get(reference.name, set())
    if "times" not in differ and reference.name not in AS_PRODUCTS:
        assert not differences(found, wanted)


@each
def test_ones_in_front_of_a_shape_say_nothing(reference: GgufReference) -> None:
    """llama-quantize leaves them out (gates of one row, one type of tokens); some write vectors so."""
    shapes = reference.shapes
    without = {name: shape[1:] if len(shape) > 1 == shape[0] else shape for name, shape in shapes.items()}
    more = {name: (1, *shape) if len(shape) == 1 else shape for name, shape in shapes.items()}
    for changed in (without, more):
        found = read(reference.metadata, changed, reference.exported, reference.name)
        assert found == reference.imported


@pytest.mark.parametrize("name", ["bamba", "bailing_hybrid", "lfm2"])
def test_a_filter_that_is_none_is_left_to_the_network_to_refuse(name: str) -> None:
    reference = GgufReference(name)
    filters = {name for name in reference.shapes if "conv" in name and name.endswith(".weight")}
    shapes = {name: (1,) if name in filters else shape for name, shape in reference.shapes.items()}
    found = read(reference.metadata, shapes, reference.exported, name)
    assert {made.shape for made in found.tensors.values() if {*made.tensors} & filters} == {(1,)}


@pytest.mark.parametrize("name", ["mixtral", "gpt_oss", "qwen2_moe", "deepseek_v3", "granitemoeshared"])
def test_a_mixture_of_one_expert_has_a_stack(name: str) -> None:
    """llama-quantize writes its experts as matrices, and its router as a vector."""
    reference = GgufReference(name)
    counts = ("expert_count", "expert_used_count", "expert_group_count", "expert_group_used_count")
    metadata = {key: 1 if key.endswith(counts) else value for key, value in reference.metadata.items()}
    mixed = ("_exps.weight", "_exps.bias", "ffn_gate_inp.weight", "ffn_gate_inp.bias")
    shapes = {
        tensor: (1, *shape[1:]) if tensor.endswith(mixed) else shape
        for tensor, shape in reference.shapes.items()
    }
    without = {tensor: shape[1:] if len(shape) > 1 == shape[0] else shape for tensor, shape in shapes.items()}
    assert without != shapes
    whole = read(metadata, shapes, reference.exported, name)
    assert any(origin.shape[0] == 1 and len(origin.shape) == 3 for origin in whole.tensors.values())
    assert read(metadata, without, reference.exported, name) == whole


@each
def test_what_was_imported_is_written_as_it_was(reference: GgufReference) -> None:
    tensors = undone(reference.imported, reference.exported)
    again = describe(reference.imported.config, tensors, reference.name)
    found = reference.fused(export(again, tensors))
    assert found.keys() == reference.exported.keys()
    for name, array in reference.exported.items():
        assert np.allclose(found[name], array, rtol=2e-6, atol=1e-7), name
    if reference.name in AS_PLAIN:
        return
    wanted = reference.described.metadata
    assert again.metadata.keys() == wanted.keys()
    assert all(_same_value(again.metadata[key], value) for key, value in wanted.items())


@pytest.mark.parametrize("name", FUSED)
def test_matrices_that_were_put_together_are_taken_apart(name: str) -> None:
    """The converter's --fuse-qkv and --fuse-gate-up-exps."""
    fused = GgufReference(name)
    plain = GgufReference(FUSED[name][0])
    theirs = dict(plain.exported)
    for whole in fused.shapes.keys() - plain.shapes.keys():
        stem, _, leaf = whole.rpartition(".")
        parts = ("attn_q", "attn_k", "attn_v") if "qkv" in stem else ("ffn_gate_exps", "ffn_up_exps")
        block = stem.rpartition(".")[0]
        members = [theirs.pop(f"{block}.{part}.{leaf}") for part in parts]
        theirs[whole] = np.concatenate(members, axis=1 if members[0].ndim == 3 else 0)
        assert digest(whole, theirs[whole]) == fused.record["tensors"][whole][1]
    imported = read(fused.metadata, fused.shapes, theirs, name)
    assert imported.config == plain.imported.config
    _, found = loaded(imported.config, undone(imported, theirs))
    _, wanted = loaded(plain.config, plain.checkpoint)
    assert not differences(found, wanted)


_MIXED = re.compile("_exps|ffn_gate_inp")


def test_experts_in_tensors_of_their_own_are_stacked() -> None:
    """As files of Mixtral from before April 2024 have them: eight, here each of four twice."""
    reference = GgufReference("mixtral")
    whole = dict(reference.exported)
    whole |= {
        name: np.tile(whole[name], (2, *[1] * (whole[name].ndim - 1)))
        for name in whole
        if _MIXED.search(name)
    }
    apart = {name: array for name, array in whole.items() if "_exps" not in name}
    for name in whole.keys() - apart.keys():
        apart |= {name.replace("_exps", f".{i}"): expert for i, expert in enumerate(whole[name])}
    found: list[dict[str, np.ndarray]] = []
    for theirs in (whole, apart):
        shapes = {name: array.shape for name, array in theirs.items()}
        imported = read({**reference.metadata, "llama.expert_count": 8}, shapes, theirs, "model")
        found.append(undone(imported, theirs))
    assert not differences(found[0], found[1])


def test_every_row_has_a_reference() -> None:
    written = {GgufReference(name).record["architecture"] for name in NAMES_OF_REFERENCES}
    of_others = {"nemotron_h", "qwen3vlmoe"}
    of_others |= {"xverse"}  # a Llama by another name, which transformers has not
    of_others |= {"exaone", "internlm2", "minicpm", "pangu-embedded"}  # read as others
    of_others |= {"hunyuan_vl", "llama-embed", "paddleocr"}  # text towers, and a Llama, by other names
    of_others |= {"qwen"}  # whose converter writes another key than its program reads
    of_others |= {"jina-bert-v3", "nomic-bert", "t5encoder"}  # see pack/gguf/test_encoders
    of_others |= {"nomic-bert-moe"}  # read alone: see test_encoders
    of_others |= {"dflash"}  # see test_block_drafts
    of_others |= {"bitnet"}  # whose numbers its converter rounds: see pack/gguf/test_references
    of_others |= {"deepseek4"}  # of which its converter takes packed experts alone: see pack/gguf
    assert written == NAMES - of_others
    assert len({row.name for row in ROWS}) >= 20


@pytest.mark.parametrize("seed", range(30))
def test_links_are_undone_by_what_they_do(seed: int) -> None:
    """Rows of any grid, dealt to any tensors on both sides, come back; and packed rows move as floats do."""
    draw = random.Random(seed)
    groups = draw.choice((1, 2, 3))
    atoms: list[Atom] = []
    for _ in range(draw.randint(1, 3)):
        sizes = tuple(draw.randint(1, 4) for _ in range(draw.randint(1, 3)))
        order = tuple(draw.sample(range(len(sizes)), len(sizes)))
        rows = math.prod(sizes) * groups
        grid = (groups, *sizes), (0, *(axis + 1 for axis in order))
        atoms.append(Atom(rows, *grid) if draw.random() < 0.7 else Atom(rows))
    every = tuple(range(len(atoms)))
    total = sum(atom.rows for atom in atoms)
    whole = Side("whole", (total, 2), every, groups)
    parts = tuple(Side(f"part{i}", (atom.rows, 2), (i,)) for i, atom in enumerate(atoms))
    link = Link((whole,), parts, tuple(atoms)) if draw.random() < 0.5 else Link(parts, (whole,), tuple(atoms))
    theirs = {side.name: np.random.default_rng(seed).random(side.shape) for side in link.theirs}
    ours = {origin.name: apply(origin, theirs.__getitem__, np) for origin in link.undo()}
    back = {origin.name: apply(origin, ours.__getitem__, np) for origin in link.do()}
    assert all(np.array_equal(back[name], array) for name, array in theirs.items())
    packed = {name: array.view(np.uint8) for name, array in theirs.items()}
    for origin in link.undo():
        moved = apply(origin, packed.__getitem__, np)
        assert np.array_equal(moved.view(np.float64), ours[origin.name])


@pytest.mark.parametrize("number", [1e-6, 1e-5, 10000.0, 0.1, 1.2, 5e5, 1.5625e-7, 0.0, 1 / 3])
def test_numbers_come_back_as_they_were_written(number: float) -> None:
    assert shortest(as_float32(number)) == pytest.approx(number, rel=1e-9 if number == 1 / 3 else 0, abs=1e-8)
    assert as_float32(shortest(as_float32(number))) == as_float32(number)


def test_the_documentation_lists_the_rows() -> None:
    page = gguf_table.PAGE.read_text(encoding="utf-8")
    assert gguf_table.section(page) == gguf_table.table(), "run python -m tests.support.gguf_table"


@pytest.mark.parametrize("name", ["falcon_h1", "kimi_k3", "qwen3_5_moe", "deepseek_v3", "gemma4"])
def test_an_imported_model_answers_as_its_checkpoint(name: str, tmp_path: Path) -> None:
    """Falcon-H1's multipliers are in the weights of the file, so nothing but the answers can be compared."""
    reference = GgufReference(name)
    answers: list[np.ndarray] = []
    for folder, config, tensors in (
        ("theirs", reference.config, reference.checkpoint),
        ("ours", reference.imported.config, undone(reference.imported, reference.exported)),
    ):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "model.safetensors"
        save_file({key: np.ascontiguousarray(array) for key, array in tensors.items()}, file)
        answers.append(full_logits(load_model(config, [file]), np.arange(3, 40)))
    assert np.abs(answers[0] - answers[1]).max() < 1e-4 * answers[0].std()


def test_a_package_of_whole_norms_keeps_them() -> None:
    """Filters that are [channels, taps, 1] tell that norms are not less one: one must not be added again."""
    reference = GgufReference("qwen3_next")
    tensors = undone(reference.imported, reference.exported)
    stored = canonical(reference.imported.config, tensors)
    assert not differences({name: stored[name] for name in tensors}, tensors)


@pytest.mark.parametrize("key", ["layer_norm_rms_epsilon", "layer_norm_epsilon"])
def test_files_of_the_first_qwen_name_the_norms_constant_in_two_ways(key: str) -> None:
    """llama.cpp's converter writes the second, its program asks for the first."""
    record = Reference("qwen").record
    ours = random_state({name: tuple(shape) for name, shape in record["tensors"].items()})
    written = describe(record["config"], ours, "model")
    theirs = export(written, ours)
    told = {name: one for name, one in written.metadata.items() if not name.endswith("epsilon")}
    told[f"qwen.attention.{key}"] = 1e-6
    imported = read(told, {name: array.shape for name, array in theirs.items()}, theirs, "model")
    parsed, again = (find_family(one).parse(one) for one in (record["config"], imported.config))
    assert parsed == again
    assert parsed.context_length == record["config"]["seq_length"]
    assert not differences(undone(imported, theirs), ours)
