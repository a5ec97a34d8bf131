"""Which configs go to mlx-lm's classes, and what is refused before any of them could compute it wrongly."""

import sys
from typing import Any

import pytest

from runtime.errors import UnsupportedModel
from runtime.models import describe, foreign
from runtime.models.foreign.config import (
    check_fields,
    check_sizes,
    check_windows,
    context_length,
    old_spelling,
)
from tests.support.foreign import describe_novel, novel

NOVEL = {"architectures": ["NovelForCausalLM"], "model_type": "novel"}


def test_without_the_extra_the_refusal_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "installed", lambda: None)
    with pytest.raises(
        UnsupportedModel, match=r"NovelForCausalLM.*modelkit-mlx\[lm\].*docs/models.md lists.*ForCausalLM"
    ):
        describe(NOVEL)


@pytest.mark.parametrize("release", ["0.31.9", "0.33.0", "1.0"])
def test_only_the_release_that_is_known_is_used(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    monkeypatch.setattr(foreign, "installed", lambda: release)
    with pytest.raises(UnsupportedModel, match=f"{release} is installed and 0.32 is wanted"):
        describe(NOVEL)


def test_our_own_architectures_never_ask_mlx_lm(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_name: str) -> Any:
        raise AssertionError("asked")

    monkeypatch.setattr(foreign, "import_module", fail)
    with pytest.raises(UnsupportedModel, match="only other classes of llama are"):
        describe({"architectures": ["LlamaForSequenceClassification"], "model_type": "llama"})


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({**NOVEL, "model_file": "evil.py"}, "asks to run the Python file 'evil.py'"),
        ({**NOVEL, "architectures": ["NovelForTokenClassification"]}, "is for TokenClassification"),
        ({**NOVEL, "model_type": ["novel"]}, "model_type is"),
    ],
)
def test_what_is_no_model_to_run_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModel, match=words):
        describe(config)


def test_a_model_says_through_what_it_runs() -> None:
    described = describe_novel(novel())
    assert described.through == "mlx-lm 0.32.2 (helium)"
    (note,) = described.notes
    assert "no NovelForCausalLM of its own" in note
    assert "the model class of mlx-lm 0.32.2 (helium)" in note


def test_an_unreadable_config_is_refused_by_the_class_that_wanted_more() -> None:
    with pytest.raises(UnsupportedModel, match=r"cannot be read by mlx-lm's helium: .*layer_types"):
        novel().parse(NOVEL)


def test_more_logits_than_embedded_ids_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from runtime.models.foreign import probe

    found = probe.Found(probe.Form((), ()), 41, 16, frozenset())
    monkeypatch.setattr(foreign, "look_at", lambda _model, *, ragged: found)
    with pytest.raises(UnsupportedModel, match="41 ids and embeds 40"):
        describe_novel(novel(), max_position_embeddings=99)


def test_stored_rotary_tables_are_left_out_and_the_class_renames_the_rest() -> None:
    architecture = novel()
    config = describe_novel(architecture).config
    given: dict[str, Any] = {"wrapped.a": 1, "layers.0.rotary_emb.inv_freq": 2}
    assert architecture.adapt(config, given) == {"a": 1}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"text_config": {"n_layers": 5000}}, "n_layers"),
        ({"moe_num_experts": 10**6}, "moe_num_experts"),
        ({"hidden_size": 1 << 40}, "hidden_size"),
        ({"sizes": [1, 1 << 40]}, "sizes"),
    ],
)
def test_absurd_numbers_are_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModel, match=words):
        check_sizes(config)


def test_rope_parameters_are_taken_apart_for_a_class_of_the_old_spelling() -> None:
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5, "partial_rotary_factor": 0.5}
    spelled = old_spelling({"rope_parameters": rope}, {"rope_theta", "rope_scaling"})
    assert spelled["rope_theta"] == 5e5
    assert spelled["partial_rotary_factor"] == 0.5
    assert spelled["rope_scaling"] == {**rope, "type": "linear"}


def test_rope_parameters_stay_where_the_class_reads_them() -> None:
    config = {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    assert old_spelling(config, {"rope_parameters"}) == config


@pytest.mark.parametrize(
    "field",
    [
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        {"rope_theta": 5e5},
        {"rope_parameters": {"full_attention": {"rope_theta": 1.0}}},
        {"partial_rotary_factor": 0.5},
        {"final_logit_softcapping": 30.0},
    ],
)
def test_a_field_that_matters_and_is_not_read_is_refused(field: dict[str, Any]) -> None:
    (name,) = field
    with pytest.raises(UnsupportedModel, match=f"{name} is .* which the class does not look at"):
        check_fields({"text_config": field}, (), "the class")
    check_fields(field, (name,), "the class")


@pytest.mark.parametrize(
    "field",
    [{"rope_scaling": None}, {"rope_scaling": {"type": "default"}}, {"rope_theta": 10000.0}, {"novel": 1}],
)
def test_a_field_that_changes_nothing_need_not_be_read(field: dict[str, Any]) -> None:
    check_fields(field, (), "the class")


def test_windows_that_no_layer_has_are_refused() -> None:
    config = {"sliding_window": 8, "max_position_embeddings": 64}
    with pytest.raises(UnsupportedModel, match="sliding_window is 8"):
        check_windows(config, (), "the class")
    check_windows(config, (8,), "the class")
    check_windows({**config, "use_sliding_window": False}, (), "the class")
    check_windows({**config, "layer_types": ["full_attention"]}, (), "the class")
    check_windows({**config, "sliding_window": 64}, (), "the class")


def test_the_context_length_comes_from_the_first_that_says_it() -> None:
    assert context_length([{}, {"n_positions": 5}], None) == 5
    assert context_length([{}], 7) == 7
    with pytest.raises(UnsupportedModel, match="max_position_embeddings"):
        context_length([{}], None)


def test_mlx_lm_is_not_imported_for_our_own(tmp_path: Any) -> None:
    import subprocess

    code = (
        "import sys; from runtime.models import describe; import runtime.models.foreign;"
        "describe({'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'vocab_size': 8,"
        "'hidden_size': 8, 'num_hidden_layers': 1, 'num_attention_heads': 1, 'intermediate_size': 8});"
        "sys.exit('mlx_lm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
