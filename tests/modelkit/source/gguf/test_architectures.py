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

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.architectures import NAMES, ROWS
from modelkit.source.gguf.architectures.apply import apply
from modelkit.source.gguf.architectures.llama3 import llama3_block, llama3_factors
from modelkit.source.gguf.architectures.moves import Atom, Link, Side
from modelkit.source.gguf.architectures.numbers import as_float32, shortest
from runtime.loaded import load_model
from runtime.models import find_family
from runtime.models.wrapper import text_config
from runtime.nn.rope_spec import read_rope
from tests.support import gguf_table
from tests.support.checkpoints import legacy_config, random_state
from tests.support.gguf_digest import digest
from tests.support.gguf_entries import AS_PLAIN, FUSED, INEXACT, LOST, MORE
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
    wrong = [key for key in theirs if not _same_value(ours[key], theirs[key])]
    assert not wrong, {key: (ours[key], theirs[key]) for key in wrong}


@each
def test_import_gives_the_checkpoint_back(reference: GgufReference) -> None:
    imported = reference.imported
    wanted_config, wanted = loaded(reference.config, reference.checkpoint)
    config, found = loaded(imported.config, undone(imported, reference.exported))
    assert type(config) is type(wanted_config)
    assert find_family(imported.config) is find_family(reference.config) or reference.name in AS_PLAIN
    fields = [field.name for field in dataclasses.fields(config)]
    differ = {name for name in fields if not _close(getattr(config, name), getattr(wanted_config, name))}
    assert differ == LOST.get(reference.name, set())
    if "times" not in differ:
        assert not differences(found, wanted)


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
    more = {f"{again.architecture}.{key}" for key in MORE.get(reference.name, ())}
    assert _of_the_model(again.metadata).keys() - more == reference.metadata.keys()
    assert all(_same_value(again.metadata[key], value) for key, value in reference.metadata.items())


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
    of_others |= {"nanbeige", "xverse"}  # Llama by other names, which transformers has not
    of_others |= {"exaone", "internlm2", "minicpm", "pangu-embedded"}  # read as others
    of_others |= {"qwen"}  # whose converter writes another key than its program reads
    of_others |= {"nomic-bert", "dflash"}  # see pack/gguf/test_encoders and test_block_drafts
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


def _changed(name: str, **changes: Any) -> Any:
    """Read a reference with other metadata (None: without the key)."""
    reference = _KEPT.setdefault(name, GgufReference(name))
    metadata = {**reference.metadata, **{key.replace("__", "."): value for key, value in changes.items()}}
    metadata = {key: value for key, value in metadata.items() if value is not None}
    return read(metadata, reference.shapes, reference.exported, "model.gguf")


def test_an_unknown_architecture_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UnsupportedSource, match="`zebra`") as caught:
        _changed("llama", general__architecture="zebra")
    assert all(name in str(caught.value.hint) for name in NAMES)


def test_a_key_that_nothing_reads_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedSource, match=r"`llama\.attention\.stripes`"):
        _changed("llama", llama__attention__stripes=3)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("general__type", "adapter", UnsupportedSource),
        ("general__architecture", None, MalformedFile),
        ("llama__block_count", None, MalformedFile),
        ("llama__block_count", 0, MalformedFile),
        ("llama__block_count", "four", MalformedFile),
        ("llama__block_count", 1 << 40, MalformedFile),
        ("llama__embedding_length", None, MalformedFile),
        ("llama__nextn_predict_layers", 9, MalformedFile),
        ("llama__rope__dimension_count", 64, MalformedFile),
        ("llama__rope__scaling__type", "spiral", UnsupportedSource),
        ("llama__attention__value_length", 8, UnsupportedSource),
        ("llama__attention__causal", False, UnsupportedSource),
    ],
)
def test_metadata_that_cannot_be_is_refused(key: str, value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"model\.gguf"):
        _changed("llama", **{key: value})


def test_what_ollama_keeps_in_the_same_file_is_left_out_and_told() -> None:
    """The tower for images with its keys, and a draft head."""
    reference = GgufReference("gemma3")
    shapes = {**reference.shapes, "v.blk.0.attn_q.weight": (8, 8), "mm.input.weight": (8, 8)}
    metadata = {**reference.metadata, "gemma3.vision.block_count": 27, "gemma3.attention.causal": True}
    imported = read(metadata, {**shapes, "mtp.fc.weight": (8, 8)}, reference.exported, "model.gguf")
    assert imported.tensors.keys() == reference.imported.tensors.keys()
    assert [note for note in imported.notes if "2 tensors for images" in note]
    assert [note for note in imported.notes if "draft head" in note]


@pytest.mark.parametrize("key", ["expert_gating_func", "expert_weights_scale"])
def test_a_router_of_another_kind_is_refused(key: str) -> None:
    with pytest.raises((MalformedFile, UnsupportedSource), match=key):
        _changed("qwen3_moe", **{f"qwen3moe__{key}": 2})


@pytest.mark.parametrize(
    ("tensor", "shape"), [("blk.0.stripes.weight", (4,)), ("blk.9.attn_q.weight", (63, 64)), ("stray", (1,))]
)
def test_a_tensor_too_many_is_refused_by_name(tensor: str, shape: tuple[int, ...]) -> None:
    reference = GgufReference("llama")
    with pytest.raises(UnsupportedSource, match=tensor.replace(".", r"\.")):
        read(reference.metadata, {**reference.shapes, tensor: shape}, reference.exported, "model.gguf")


def test_a_file_without_an_embedding_is_no_model() -> None:
    reference = GgufReference("llama")
    shapes = {name: shape for name, shape in reference.shapes.items() if name != "token_embd.weight"}
    with pytest.raises(MalformedFile, match=r"token_embd\.weight"):
        read(reference.metadata, shapes, reference.exported, "model.gguf")


def test_heads_of_keys_that_contradict_the_tensors_are_refused() -> None:
    """llama.cpp's converter writes zeros for configs of transformers 5, and leaves rows as they were."""
    with pytest.raises(UnsupportedSource, match="head_count_kv"):
        _changed("granitemoehybrid", granitehybrid__attention__head_count_kv=[0, 0, 0])


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("kimi_linear", "kimi-linear__attention__head_count_kv", [1, 0, 1]),
        ("kimi_linear", "kimi-linear__expert_weights_norm", False),
        ("mistral4", "mistral4__rope__scaling__yarn_log_multiplier", 0.07),
        ("mistral4", "mistral4__attention__temperature_length", 9),
        ("mistral4", "mistral4__expert_gating_func", 2),
        ("t5", "t5__decoder_block_count", 1),
        ("t5", "t5__attention__value_length", 8),
        ("phi3_window", "phi3__rope__scaling__attn_factor", 2.0),
    ],
)
def test_what_contradicts_the_rest_or_is_not_computed_is_refused(name: str, key: str, value: Any) -> None:
    with pytest.raises((MalformedFile, UnsupportedSource), match=r"model\.gguf"):
        _changed(name, **{key: value})


def test_a_slope_that_the_converter_does_not_write_is_told() -> None:
    reference = GgufReference("mistral4")
    assert any("0.1 is taken" in note for note in reference.imported.notes)
    told = {f"mistral4.attention.temperature_{key}": value for key, value in (("scale", 0.3), ("length", 64))}
    again = read({**reference.metadata, **told}, reference.shapes, reference.exported, "it")
    assert again.config["rope_parameters"]["llama_4_scaling_beta"] == 0.3
    assert not again.notes


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            "t5",
            {"feed_forward_proj": "gated-relu", "is_gated_act": True},
            "computes 'relu', gated",
        ),
        ("t5", {"scale_decoder_outputs": False}, "scaled before the head"),
        ("kimi_linear", {"linear_attn_config": {"num_heads": 8}}, "KDA has 8 heads"),
        ("kimi_linear", {"moe_renormalize": False}, "not normalized"),
        ("mistral4", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "mscale"),
    ],
)
def test_what_has_no_key_is_not_written(name: str, change: dict[str, Any], said: str) -> None:
    reference = GgufReference(name)
    with pytest.raises(UnsupportedSource, match=said):
        describe({**reference.config, **change}, reference.package, "model")


def test_a_wrapper_may_leave_out_what_the_class_fills_in() -> None:
    """Sizes of Mistral 4's heads that its config does not say are not those of DeepSeek."""
    reference = GgufReference("mistral4")
    unsaid = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")
    config = {key: value for key, value in reference.config.items() if key not in unsaid}
    small = {name: array for name, array in reference.package.items() if "layers" not in name}
    found = describe(config, small, "model").metadata
    assert found["mistral4.attention.kv_lora_rank"] == 256
    assert found["mistral4.attention.key_length_mla"] == 128


def test_a_rotation_in_the_older_spelling_is_not_the_classs_own() -> None:
    reference = GgufReference("mistral4")
    older = legacy_config(text_config(reference.config))
    assert "rope_parameters" not in older
    found = describe(older, reference.package, "model").metadata
    assert found == reference.described.metadata


@pytest.mark.parametrize("head_dim", [16, 48, 128])
@pytest.mark.parametrize(
    ("factor", "low", "high", "context"),
    [
        (8.0, 1.0, 4.0, 64),  # a context of no published model
        (7.5, 1.0, 5.0, 777),
        (40.0, 1.5, 6.0, 5000),
        (3.0, 2.0, 2.5, 8192),
        (16.0, 1.0, 1.0, 8192),  # Llama 4 Scout: nothing between the bounds
    ],
)
def test_parameters_of_llama3s_rotation_are_found_from_its_factors(
    factor: float, low: float, high: float, context: int, head_dim: int
) -> None:
    block = {
        "rope_type": "llama3",
        "rope_theta": 50000.0,
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": context,
    }
    found = llama3_block(llama3_factors(block, head_dim), 50000.0, 131072)
    assert found is not None
    specs = [
        read_rope(one, head_dim=head_dim, max_positions=131072)
        for one in (block, {**found, "rope_theta": 50000.0})
    ]
    assert specs[1].wavelengths == pytest.approx(specs[0].wavelengths, rel=1e-5)


def test_factors_of_a_rotation_that_is_not_llama3s_are_refused() -> None:
    reference = GgufReference("llama_llama3_rope")
    theirs = {**reference.exported, "rope_freqs.weight": np.linspace(1, 3, 8, dtype=np.float32)}
    with pytest.raises(UnsupportedSource, match=r"rope_freqs\.weight"):
        read(reference.metadata, reference.shapes, theirs, "model.gguf")


def test_a_window_that_gguf_cannot_say_is_told() -> None:
    reference = GgufReference("llama")
    config = {**reference.config, "model_type": "mistral", "sliding_window": 12}
    notes = describe(config, reference.package, "model").notes
    assert any("window of 12" in note for note in notes)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("smollm3", "no_rope_layers", [1, 1, 0, 0]),
        ("gemma2", "query_pre_attn_scalar", 24),
        ("qwen3_next", "norm_topk_prob", False),
        ("gpt_oss", "swiglu_limit", 3.0),
        ("llama4", "attention_chunk_size", 128),
        ("mamba2", "time_step_limit", [0.1, 0.5]),
    ],
)
def test_what_llama_cpp_takes_for_granted_is_not_written_away(name: str, field: str, value: Any) -> None:
    reference = GgufReference(name)
    with pytest.raises(UnsupportedSource, match=field.partition("_layers")[0]):
        describe({**reference.config, field: value}, reference.package, "model")


def test_a_draft_head_that_has_no_place_is_told() -> None:
    """llama.cpp has none for ERNIE in its files, and files of EXAONE have one that is not run here."""
    reference = GgufReference("ernie4_5_moe")
    head = {"model.mtp_linear_proj.0.weight": np.zeros((64, 128), np.float32)}
    described = describe(reference.config, reference.package | head, "model")
    assert described.tensors.keys() == reference.described.tensors.keys()
    assert any("draft head is left out" in note for note in described.notes)
    theirs = GgufReference("exaone_moe")
    metadata = {**theirs.metadata, "exaone-moe.block_count": 5, "exaone-moe.nextn_predict_layers": 1}
    shapes = {**theirs.shapes, "blk.4.attn_q.weight": (8, 64)}
    imported = read(metadata, shapes, theirs.exported, "model.gguf")
    assert imported.tensors.keys() == theirs.imported.tensors.keys()
    assert any("draft head is left out" in note for note in imported.notes)


@pytest.mark.parametrize("key", ["hidden_activation", "classifier.pooling_type", "vocab_size"])
def test_a_list_where_one_value_belongs_is_refused(key: str) -> None:
    reference = GgufReference("modernbert")
    metadata = {**reference.metadata, f"modern-bert.{key}": (1, 2)}
    with pytest.raises(MalformedFile, match=r"is \(1, 2\); "):
        read(metadata, reference.shapes, reference.exported, "model.gguf")


def test_a_file_with_nothing_but_a_draft_head_is_refused() -> None:
    """As the converter makes with `--mtp`."""
    reference = GgufReference("glm4_moe_lite_head")
    shapes = {name: shape for name, shape in reference.shapes.items() if not re.match(r"blk\.[0-2]\.", name)}
    assert len(shapes) < len(reference.shapes)
    with pytest.raises(UnsupportedSource, match="draft head alone"):
        read(reference.metadata, shapes, reference.exported, "mtp-model.gguf")


def test_a_draft_that_is_not_read_is_refused_as_such() -> None:
    with pytest.raises(UnsupportedSource, match="draft"):
        read({"general.architecture": "eagle3"}, {}, {}, "model.gguf")


def test_clusters_of_an_assistants_vocabulary_are_left_out_and_told() -> None:
    """The converter leaves them out, llama.cpp takes them and scores all tokens."""
    reference = GgufReference("gemma4_assistant")
    theirs = {"masked_embd_centroids.weight": (16, 32), "masked_embd_ordering": (128,)}
    imported = read(reference.metadata, {**reference.shapes, **theirs}, reference.exported, "it")
    assert imported.tensors.keys() == reference.imported.tensors.keys()
    assert any("clusters" in note for note in imported.notes)
    assert imported.config["use_ordered_embeddings"] is False


def test_the_documentation_lists_the_rows() -> None:
    page = gguf_table.PAGE.read_text(encoding="utf-8")
    assert gguf_table.section(page) == gguf_table.table(), "run python -m tests.support.gguf_table"


@pytest.mark.parametrize("name", ["falcon_h1", "qwen3_5_moe", "deepseek_v3", "gemma4"])
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
