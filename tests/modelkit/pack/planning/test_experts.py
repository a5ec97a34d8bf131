from collections.abc import Callable, Mapping

import pytest

from modelkit.errors import PlanError
from modelkit.pack.planning.experts import deal_out, gather
from modelkit.pack.planning.families import checkpoint_of
from modelkit.pack.planning.matrix import Matrix
from modelkit.pack.planning.slabs import Columns
from modelkit.source.inventory import Inventory
from runtime.quant import find_format
from runtime.tensors.checkpoint import PLAIN, Checkpoint

Make = Callable[..., Inventory]
PREFIXES = ("model.", "language_model.model.", "model.language_model.", "backbone.", "mtp.", "")


def gathered(
    make: Make, tensors: Mapping[str, tuple[str, tuple[int, ...]]], files: Checkpoint = PLAIN
) -> dict[str, Matrix]:
    return {matrix.name: matrix for matrix in gather(make(tensors).tensors.values(), files, {})}


def experts(
    owner: str, matrix: str, count: int, shape: tuple[int, ...] = (64, 128)
) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {f"{owner}.experts.{index}.{matrix}.weight": ("BF16", shape) for index in range(count)}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("owner", ["mlp", "moe", "mixer", "block_sparse_moe"])
def test_experts_are_stacked_in_numeric_order(inventory_of: Make, prefix: str, owner: str) -> None:
    at = f"{prefix}layers.3.{owner}"
    found = gathered(inventory_of, experts(at, "up_proj", 12))
    stack = found[f"{at}.switch_mlp.up_proj.weight"]
    assert stack.shape == (12, 64, 128)
    names = [slab.tensor.name for slab in stack.slabs]
    assert names == [f"{at}.experts.{index}.up_proj.weight" for index in range(12)]


@pytest.mark.parametrize("group", ["shared_experts", "switch_mlp"])
def test_numbered_groups_keep_their_name(inventory_of: Make, group: str) -> None:
    tensors = {f"model.layers.0.mlp.{group}.{i}.up_proj.weight": ("BF16", (64, 64)) for i in range(2)}
    assert set(gathered(inventory_of, tensors)) == {f"model.layers.0.mlp.{group}.up_proj.weight"}


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.mlp.gate.weight",
        "model.layers.0.mlp.experts.norm",
        "model.layers.0.mlp.switch_mlp.up_proj.weight",
        "model.layers.0.input_layernorm.weight",
        "lm_head.weight",
    ],
)
def test_everything_else_passes_under_its_own_name(inventory_of: Make, name: str) -> None:
    found = gathered(inventory_of, {name: ("BF16", (64, 64))})
    assert found[name].known_as == name


def test_a_missing_expert_is_named(inventory_of: Make) -> None:
    tensors = experts("model.layers.0.mlp", "up_proj", 4)
    del tensors["model.layers.0.mlp.experts.2.up_proj.weight"]
    with pytest.raises(PlanError, match=r"expert 2 of 4 has no up_proj\.weight"):
        gathered(inventory_of, tensors)


def test_a_missing_last_expert_shows_against_the_other_stacks(inventory_of: Make) -> None:
    tensors = experts("model.layers.0.mlp", "up_proj", 4) | experts("model.layers.1.mlp", "up_proj", 3)
    with pytest.raises(PlanError, match=r"layers\.1\.mlp\.experts: expert 3 of 4"):
        gathered(inventory_of, tensors)


def test_experts_of_different_shapes_are_refused(inventory_of: Make) -> None:
    tensors = experts("model.layers.0.mlp", "up_proj", 2)
    tensors["model.layers.0.mlp.experts.1.up_proj.weight"] = ("BF16", (64, 64))
    with pytest.raises(PlanError, match="differ"):
        gathered(inventory_of, tensors)


def test_mixtral_matrices_get_their_mlx_names(inventory_of: Make) -> None:
    at = "model.layers.0.block_sparse_moe"
    tensors = experts(at, "w1", 2) | experts(at, "w2", 2) | experts(at, "w3", 2)
    names = {f"{at}.switch_mlp.{name}.weight" for name in ("gate_proj", "down_proj", "up_proj")}
    assert set(gathered(inventory_of, tensors)) == names


def test_nemotron_matrices_are_judged_by_their_own_names(inventory_of: Make) -> None:
    files = checkpoint_of({"architectures": ["NemotronHForCausalLM"]})
    at = "backbone.layers.1.mixer"
    (stack,) = gathered(inventory_of, experts(at, "down_proj", 2), files).values()
    assert (stack.name, stack.known_as) == (f"{at}.switch_mlp.fc2.weight", f"{at}.experts.down_proj.weight")


def test_a_fused_stack_is_cut_in_the_middle_of_each_expert(inventory_of: Make) -> None:
    at = "model.layers.0.mlp"
    found = gathered(inventory_of, {f"{at}.experts.gate_up_proj": ("BF16", (3, 10, 64))})
    up = found[f"{at}.switch_mlp.up_proj.weight"]
    assert up.shape == (3, 5, 64)
    assert [(slab.start, slab.stop) for slab in up.slabs] == [(5, 10), (15, 20), (25, 30)]


DBRX = {"architectures": ["DbrxForCausalLM"], "ffn_config": {"moe_num_experts": 3}}


def test_experts_below_each_other_are_a_stack(inventory_of: Make) -> None:
    at = "transformer.blocks.0.ffn"
    piles = {f"{at}.experts.mlp.{name}": ("BF16", (3 * 40, 64)) for name in ("w1", "v1", "w2")}
    found = gathered(inventory_of, piles, checkpoint_of(DBRX))
    shapes = {name.removeprefix(f"{at}.switch_mlp."): matrix.shape for name, matrix in found.items()}
    assert shapes == {
        "gate_proj.weight": (3, 40, 64),
        "up_proj.weight": (3, 40, 64),
        "down_proj.weight": (3, 64, 40),
    }
    down = found[f"{at}.switch_mlp.down_proj.weight"]
    assert [(piece.matrix, piece.height) for piece in down.slabs if isinstance(piece, Columns)] == [
        (0, 40),
        (1, 40),
        (2, 40),
    ]


def test_experts_of_dbrx_one_by_one_are_the_same_stacks(inventory_of: Make) -> None:
    """As mlx-lm saves them."""
    at = "transformer.blocks.0.ffn"
    tensors = experts(at, "w1", 3) | experts(at, "v1", 3) | experts(at, "w2", 3)
    found = gathered(inventory_of, tensors, checkpoint_of(DBRX))
    assert set(found) == {f"{at}.switch_mlp.{name}_proj.weight" for name in ("gate", "up", "down")}


def test_rows_that_are_not_the_same_for_all_experts_are_refused(inventory_of: Make) -> None:
    name = "transformer.blocks.0.ffn.experts.mlp.w1"
    with pytest.raises(PlanError, match="has 100 rows for 3 experts"):
        gathered(inventory_of, {name: ("BF16", (100, 64))}, checkpoint_of(DBRX))


def test_gemma4_stacks_have_their_own_home(inventory_of: Make) -> None:
    files = checkpoint_of({"architectures": ["Gemma4ForCausalLM"]})
    found = gathered(inventory_of, {"model.layers.0.experts.down_proj": ("BF16", (3, 8, 64))}, files)
    assert set(found) == {"model.layers.0.experts.switch_glu.down_proj.weight"}


def test_lfm2_moe_matrices_get_mlx_names_outside_stacks_too(inventory_of: Make) -> None:
    files = checkpoint_of({"architectures": ["Lfm2MoeForCausalLM"], "model_type": "lfm2_moe"})
    at = "model.layers.0.feed_forward"
    tensors = {f"{at}.{theirs}.weight": ("BF16", (64, 64)) for theirs in ("w1", "w2", "w3")}
    names = {f"{at}.{name}.weight" for name in ("gate_proj", "down_proj", "up_proj")}
    assert set(gathered(inventory_of, tensors, files)) == names


def test_granite_without_experts_gets_an_ordinary_mlp(inventory_of: Make) -> None:
    files = checkpoint_of({"model_type": "granitemoehybrid", "num_local_experts": 0})
    shared = "model.layers.0.shared_mlp"
    tensors = {
        f"{shared}.input_linear.weight": ("BF16", (128, 64)),
        f"{shared}.output_linear.weight": ("BF16", (64, 64)),
    }
    found = gathered(inventory_of, tensors, files)
    names = ("gate_proj", "up_proj", "down_proj")
    slabs = [found[f"model.layers.0.mlp.{name}.weight"].slabs[0] for name in names]
    assert [(slab.start, slab.stop) for slab in slabs] == [(0, 64), (64, 128), (0, 64)]


def test_granite_with_experts_keeps_its_shared_one(inventory_of: Make) -> None:
    files = checkpoint_of({"model_type": "granitemoehybrid", "num_local_experts": 4})
    name = "model.layers.0.shared_mlp.input_linear.weight"
    assert set(gathered(inventory_of, {name: ("BF16", (128, 64))}, files)) == {name}


@pytest.mark.parametrize("kind", ["granitemoe", "granitemoeshared", "granitemoehybrid"])
def test_granite_calls_its_stacks_otherwise(inventory_of: Make, kind: str) -> None:
    files = checkpoint_of({"model_type": kind, "num_local_experts": 3})
    at = "model.layers.0.block_sparse_moe"
    tensors = {
        f"{at}.input_linear.weight": ("BF16", (3, 10, 64)),
        f"{at}.output_linear.weight": ("BF16", (3, 64, 5)),
    }
    found = gathered(inventory_of, tensors, files)
    assert {name: matrix.shape for name, matrix in found.items()} == {
        f"{at}.switch_mlp.gate_proj.weight": (3, 5, 64),
        f"{at}.switch_mlp.up_proj.weight": (3, 5, 64),
        f"{at}.switch_mlp.down_proj.weight": (3, 64, 5),
    }
    up = found[f"{at}.switch_mlp.up_proj.weight"]
    assert [(slab.start, slab.stop) for slab in up.slabs] == [(5, 10), (15, 20), (25, 30)]
    assert up.known_as == f"{at}.experts.up_proj"


def test_step_calls_its_stacks_weights(inventory_of: Make) -> None:
    at = "model.layers.3.moe"
    tensors = {f"{at}.{part}_proj.weight": ("BF16", (4, 64, 64)) for part in ("gate", "up", "down")}
    found = gathered(inventory_of, tensors, checkpoint_of({"model_type": "step3p5"}))
    assert set(found) == {
        f"model.layers.3.mlp.switch_mlp.{part}_proj.weight" for part in ("gate", "up", "down")
    }
    assert all(matrix.shape == (4, 64, 64) for matrix in found.values())


def test_qwen3_next_is_written_as_mlx_keeps_it(inventory_of: Make) -> None:
    files = checkpoint_of({"model_type": "qwen3_next"})
    layer = "model.layers.0"
    tensors = {
        f"{layer}.linear_attn.conv1d.weight": ("BF16", (192, 1, 4)),
        f"{layer}.linear_attn.norm.weight": ("BF16", (32,)),
        f"{layer}.input_layernorm.weight": ("BF16", (64,)),
    }
    found = gathered(inventory_of, tensors, files)
    assert found[f"{layer}.linear_attn.conv1d.weight"].shape == (192, 4, 1)
    assert [found[name].plus_one for name in tensors] == [False, False, True]


def test_a_layer_stored_input_first_is_told_by_its_shapes(inventory_of: Make) -> None:
    at = "model.layers.0.mlp"
    shapes = {"gate_up_proj": (3, 64, 20), "down_proj": (3, 10, 64)}
    tensors = {f"{at}.experts.{name}": ("BF16", shape) for name, shape in shapes.items()}
    found = gathered(inventory_of, tensors)
    up, down = found[f"{at}.switch_mlp.up_proj.weight"], found[f"{at}.switch_mlp.down_proj.weight"]
    assert (up.shape, down.shape) == ((3, 10, 64), (3, 64, 10))
    assert [(s.matrix, s.start, s.stop) for s in up.slabs if isinstance(s, Columns)] == [
        (0, 10, 20),
        (1, 10, 20),
        (2, 10, 20),
    ]


def test_a_square_stack_stored_output_first_is_not_turned(inventory_of: Make) -> None:
    at = "model.layers.0.mlp"
    tensors = {
        f"{at}.experts.gate_up_proj": ("BF16", (3, 64, 64)),
        f"{at}.experts.down_proj": ("BF16", (3, 64, 32)),
    }
    found = gathered(inventory_of, tensors)
    assert found[f"{at}.switch_mlp.gate_proj.weight"].shape == (3, 32, 64)
    assert not any(isinstance(slab, Columns) for matrix in found.values() for slab in matrix.slabs)


def test_gpt_oss_floats_alternate_in_matrices_and_biases(inventory_of: Make) -> None:
    at = "model.layers.0.mlp.experts"
    tensors = {
        f"{at}.gate_up_proj": ("BF16", (3, 64, 20)),
        f"{at}.gate_up_proj_bias": ("BF16", (3, 20)),
        f"{at}.down_proj": ("BF16", (3, 10, 64)),
        f"{at}.down_proj_bias": ("BF16", (3, 64)),
    }
    found = gathered(inventory_of, tensors, checkpoint_of({"model_type": "gpt_oss"}))
    parts = ("gate_proj", "up_proj", "down_proj")
    assert set(found) == {f"{at}.{part}.{leaf}" for part in parts for leaf in ("weight", "bias")}
    starts = [(slab.start, slab.step) for slab in found[f"{at}.up_proj.weight"].slabs]
    assert starts == [(1, 2)] * 3
    assert found[f"{at}.up_proj.bias"].shape == (3, 10)


def test_aria_stores_experts_input_first_under_names_of_its_own(inventory_of: Make) -> None:
    at = "language_model.model.layers.0.mlp"
    tensors = {
        f"{at}.experts.fc1.weight": ("BF16", (3, 64, 20)),
        f"{at}.experts.fc2.weight": ("BF16", (3, 10, 64)),
    }
    found = gathered(inventory_of, tensors, checkpoint_of({"model_type": "aria_text"}))
    shapes = {name: matrix.shape for name, matrix in found.items()}
    assert shapes == {
        f"{at}.switch_mlp.gate_proj.weight": (3, 10, 64),
        f"{at}.switch_mlp.up_proj.weight": (3, 10, 64),
        f"{at}.switch_mlp.down_proj.weight": (3, 64, 10),
    }
    assert all(isinstance(slab, Columns) for matrix in found.values() for slab in matrix.slabs)


def test_inkling_stacks_have_rows_in_turn_where_they_are_named_so(inventory_of: Make) -> None:
    """As published; those that transformers saves have gate before up. Experts that always answer, too."""
    published = "model.llm.layers.0.mlp"
    saved = "model.layers.0.mlp"
    tensors = {
        f"{published}.experts.w13_weight": ("BF16", (3, 64, 20)),
        f"{published}.experts.w2_weight": ("BF16", (3, 20, 32)),
        f"{published}.shared_experts.shared_w13_weight": ("BF16", (2, 64, 20)),
        f"{published}.shared_experts.shared_w2_weight": ("BF16", (2, 20, 32)),
        f"{saved}.experts.gate_up_proj": ("BF16", (3, 64, 20)),
        f"{saved}.shared_experts.up_proj": ("BF16", (2, 32, 20)),
    }
    found = gathered(inventory_of, tensors, checkpoint_of({"model_type": "inkling_text"}))
    for group in ("switch_mlp", "shared_experts"):
        starts = {(slab.start % 64, slab.step) for slab in found[f"{published}.{group}.up_proj.weight"].slabs}
        assert starts == {(1, 2)}
        assert f"{published}.{group}.down_proj.weight" in found
    starts = {(slab.start % 64, slab.step) for slab in found[f"{saved}.switch_mlp.up_proj.weight"].slabs}
    assert starts == {(32, 1)}
    assert found[f"{saved}.shared_experts.up_proj.weight"].known_as == f"{saved}.shared_experts.up_proj"


GPT2 = checkpoint_of({"architectures": ["GPT2LMHeadModel"]})


def gpt2_layer(*shape: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    square = (shape[1] // 3,) * 2 if shape[1] > shape[0] else (shape[0] // 3,) * 2
    return {
        "transformer.h.0.attn.c_attn.weight": ("F32", shape),
        "transformer.h.0.attn.c_proj.weight": ("F32", square),
        "transformer.wte.weight": ("F32", (100, 64)),
        "lm_head.weight": ("F32", (100, 64)),
    }


def test_gpt2_gets_mlx_names_and_matrices_turned_over(inventory_of: Make) -> None:
    found = gathered(inventory_of, gpt2_layer(64, 192), GPT2)
    assert found["model.h.0.attn.c_attn.weight"].shape == (192, 64)
    assert isinstance(found["model.h.0.attn.c_proj.weight"].slabs[0], Columns)
    assert {"model.wte.weight", "lm_head.weight"} < set(found)


def test_gpt2_as_mlx_has_it_is_not_turned_again(inventory_of: Make) -> None:
    found = gathered(inventory_of, gpt2_layer(192, 64), GPT2)
    assert found["model.h.0.attn.c_attn.weight"].shape == (192, 64)
    assert not any(isinstance(slab, Columns) for matrix in found.values() for slab in matrix.slabs)


def test_an_odd_fused_stack_is_refused(inventory_of: Make) -> None:
    with pytest.raises(PlanError, match="odd number of rows"):
        gathered(inventory_of, {"model.layers.0.mlp.experts.gate_up_proj": ("BF16", (3, 9, 64))})


def test_gpt_oss_rows_are_dealt_to_gate_and_up(inventory_of: Make) -> None:
    base = "model.layers.0.mlp.experts.gate_up_proj"
    stored = find_format("mxfp4")
    assert stored is not None
    inventory = inventory_of({f"{base}_blocks": ("U8", (2, 6, 3, 16)), f"{base}_scales": ("U8", (2, 6, 3))})
    gate, up = deal_out([base], inventory.tensors, stored)
    assert [(o.name, o.dtype, o.shape) for o in up.outputs] == [
        ("model.layers.0.mlp.experts.up_proj.weight", "U32", (2, 3, 12)),
        ("model.layers.0.mlp.experts.up_proj.scales", "U8", (2, 3, 3)),
    ]
    assert [(slab.start, slab.step) for slab in (*gate.slabs, *up.slabs)] == [(0, 2), (0, 2), (1, 2), (1, 2)]


def test_blocks_without_experts_are_not_divided_by_their_number(inventory_of: Make) -> None:
    base = "model.layers.0.mlp.experts.gate_up_proj"
    stored = find_format("mxfp4")
    assert stored is not None
    none = {f"{base}_blocks": ("U8", (0, 6, 3, 16)), f"{base}_scales": ("U8", (0, 6, 3))}
    inventory = inventory_of({**none, f"{base}_bias": ("BF16", (0, 6))})
    gate, _, *_ = deal_out([base], inventory.tensors, stored)
    assert gate.outputs[0].shape == (0, 3, 12)
