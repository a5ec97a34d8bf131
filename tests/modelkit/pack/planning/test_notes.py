"""What a plan says when less was quantized than a user may expect."""

from collections.abc import Callable, Mapping

import pytest

from modelkit.modelfile.quantizing import parse_format
from modelkit.pack.planning.plan import plan
from modelkit.source.inventory import Inventory
from modelkit.source.prequantized import FloatWeights

Make = Callable[..., Inventory]
MATRIX = {"model.layers.0.mlp.gate_proj.weight": ("BF16", (640, 64))}
CONFIG = {"model_type": "qwen2_vl", "num_hidden_layers": 4}


def notes(make: Make, wanted: str, more: Mapping[str, tuple[str, tuple[int, ...]]]) -> tuple[str, ...]:
    return plan(make({**MATRIX, **more}, CONFIG), FloatWeights(), parse_format(wanted)).notes


def test_much_that_stays_wide_is_said_with_the_reason_of_most(inventory_of: Make) -> None:
    (note,) = notes(
        inventory_of,
        "q4",
        {
            "visual.a.weight": ("BF16", (160, 64)),
            "visual.b.weight": ("F32", (320, 64)),
            "model.norm.weight": ("F32", (64,)),
        },
    )
    assert note == (
        "43% of the weights stay at f32; the largest part: vision tower (visual.b.weight and 1 more)"
    )


@pytest.mark.parametrize("rows", [10, 71])
def test_a_tenth_may_stay_wide_without_a_word(inventory_of: Make, rows: int) -> None:
    assert not notes(inventory_of, "q4", {"visual.a.weight": ("BF16", (rows, 64))})


def test_a_cast_says_nothing_of_the_kind(inventory_of: Make) -> None:
    assert not notes(inventory_of, "f16", {"visual.a.weight": ("I32", (640, 64))})


def test_one_fact_is_one_note(inventory_of: Make) -> None:
    odd = {f"model.layers.{at}.mlp.up_proj.weight": ("BF16", (320, 48)) for at in range(2)}
    (note,) = notes(inventory_of, "q4", odd)
    assert note.startswith("2 matrices stay at bf16, 43% of the weights: rows of 48 elements do not divide")


def test_most_of_it_in_another_format_is_said(inventory_of: Make) -> None:
    table = {"model.embed_tokens.weight": ("BF16", (1280, 64))}
    made = plan(inventory_of({**MATRIX, **table}, CONFIG), FloatWeights(), parse_format("q4"))
    assert made.notes == (
        "67% of the weights are stored as q8, not q4, which would cost them too much; "
        "the largest part: token embedding (model.embed_tokens.weight)",
    )
    assert made.summary == "q8 (q4 was asked for)"


def test_as_asked_for_is_said_shortly(inventory_of: Make) -> None:
    made = plan(inventory_of(MATRIX, CONFIG), FloatWeights(), parse_format("q4"))
    assert (made.notes, made.summary) == ((), "q4")
