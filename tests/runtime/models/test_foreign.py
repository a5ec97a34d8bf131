"""Which configs go to mlx-lm's classes, and what is refused before any of them could compute it wrongly."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from runtime.errors import UnsupportedModel, WeightMismatch
from runtime.models import ARCHITECTURES, describe, foreign
from runtime.models.foreign import KINDS
from runtime.models.foreign.refused import REFUSED
from runtime.models.foreign.words import reason
from tests.support import foreign as support
from tests.support.foreign import CONFIG, describe_novel, novel

NOVEL: dict[str, Any] = {"architectures": ["NovelForCausalLM"], "model_type": "novel"}
with_mlx_lm = pytest.mark.skipif(find_spec("mlx_lm") is None, reason="mlx-lm is not installed")


def test_our_own_architectures_never_ask_mlx_lm(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_name: str) -> Any:
        raise AssertionError("asked")

    monkeypatch.setattr(foreign, "import_module", fail)
    with pytest.raises(UnsupportedModel, match="only other classes of llama are"):
        describe({"architectures": ["LlamaForSequenceClassification"], "model_type": "llama"})


def test_no_kind_has_a_file_of_our_own() -> None:
    classes = {name for kind in KINDS.values() for name in kind.classes}
    assert not {*KINDS, *classes} & ARCHITECTURES.keys()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({**NOVEL, "model_file": "evil.py"}, "asks to run the Python file 'evil.py'"),
        ({**NOVEL, "model_type": ["dbrx"]}, "nothing here runs it|model_type is"),
        ({**NOVEL, "model_type": "../../evil"}, "nothing here runs it"),
        ({**NOVEL, "model_type": "cache"}, "nothing here runs it"),  # a file of mlx-lm, and no model
        ({**NOVEL, "model_type": "exaone"}, "transformers has no class for it"),
        ({**NOVEL, "model_type": "phi3small"}, "see those that come later"),
    ],
)
def test_what_is_no_model_to_run_is_refused(
    config: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "import_module", None)  # nothing is imported for a refusal
    with pytest.raises(UnsupportedModel, match=words):
        describe(config)


@with_mlx_lm
def test_every_class_of_mlx_lm_is_ours_or_proven_or_refused_with_a_reason() -> None:
    spec = find_spec("mlx_lm.models")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])
    models = {path.stem for path in folder.glob("*.py") if "class Model(" in path.read_text(encoding="utf-8")}
    known = {*ARCHITECTURES, *KINDS, *REFUSED, *(kind.file for kind in KINDS.values())}
    assert not models - known


def test_a_model_says_through_what_it_runs() -> None:
    described = describe_novel(novel())
    assert described.through == "mlx-lm 0.32.2 (novel)"
    (note,) = described.notes
    assert "no NovelForCausalLM of its own" in note
    assert "the model class of mlx-lm 0.32.2 (novel)" in note


def test_more_logits_than_embedded_ids_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from runtime.models.foreign import probe

    found = probe.Found(probe.Form(()), 41, 16)
    monkeypatch.setattr(foreign, "look_at", lambda _model, *, ragged: found)
    with pytest.raises(UnsupportedModel, match="41 ids and embeds 40"):
        describe_novel(novel(), max_position_embeddings=99)


class Demanding(support.Model):
    def __init__(self, args: support.ModelArgs) -> None:
        raise TypeError("Model.__init__() missing 2 required positional arguments: 'a_field' and 'another'")


def test_what_a_class_wants_more_is_said_without_its_python() -> None:
    with pytest.raises(UnsupportedModel, match=r"cannot be built.*: it wants 'a_field' and 'another'$"):
        novel(Demanding).parse(CONFIG)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (KeyError("factor"), "it wants factor, which is not there"),
        (ValueError("heads do not divide"), "heads do not divide"),
        (
            AttributeError("'NoneType' object has no attribute 'get'"),
            "its own code fails on it (AttributeError)",
        ),
        (ImportError("No module named 'hf_olmo'"), "another package is wanted (No module named 'hf_olmo')"),
    ],
)
def test_python_is_never_quoted(fault: Exception, words: str) -> None:
    assert reason(fault) == words


def _adapted(
    given: dict[str, mx.array], model: type[Any] = support.Model, **config: Any
) -> dict[str, mx.array]:
    architecture = novel(model)
    return architecture.adapt(describe_novel(architecture, **config).config, given)


def _zeros(*shapes: tuple[int, ...]) -> list[mx.array]:
    return [mx.zeros(shape) for shape in shapes]


def test_what_carries_nothing_is_left_out_and_the_class_renames_the_rest() -> None:
    a, table, mask, head = _zeros((3,), (4,), (5,), (6,))
    given = {"wrapped.a": a, "layers.0.rotary_emb.inv_freq": table, "b.mask": mask, "lm_head.weight": head}
    assert _adapted(given) == {"a": a}


class Dropping(support.Model):
    """Stacks its experts, and throws away what it does not know."""

    def sanitize(self, weights: dict[str, mx.array]) -> dict[str, mx.array]:
        experts = [weights.pop(f"experts.{i}") for i in range(2)]
        kept = {name: array for name, array in weights.items() if "bias" not in name}
        return {**kept, "experts": mx.stack(experts)}


def test_a_tensor_that_would_vanish_is_refused_by_name() -> None:
    first, second, bias, other = _zeros((2, 3), (2, 3), (3,), (2,))
    given = {"experts.0": first, "experts.1": second, "other": other}
    assert _adapted(dict(given), Dropping).keys() == {"experts", "other"}
    with pytest.raises(WeightMismatch, match="correction_bias is thrown away by mlx-lm's novel") as refusal:
        _adapted({**given, "correction_bias": bias}, Dropping)
    assert len(refusal.value.problems) == 1


class Choosy(support.Model):
    def sanitize(self, weights: dict[str, mx.array]) -> dict[str, mx.array]:
        return {"all": weights["needed"]}


def test_tensors_that_the_class_cannot_take_are_refused_in_words() -> None:
    (other,) = _zeros((2,))
    with pytest.raises(WeightMismatch, match="novel cannot take these tensors: it wants needed"):
        _adapted({"other": other}, Choosy)


def test_mlx_lm_is_not_imported_for_our_own() -> None:
    code = (
        "import sys; from runtime.models import describe; import runtime.models.foreign;"
        "describe({'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'vocab_size': 8,"
        "'hidden_size': 8, 'num_hidden_layers': 1, 'num_attention_heads': 1, 'intermediate_size': 8});"
        "sys.exit('mlx_lm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_dtypes_are_kept_where_the_class_says_so() -> None:
    class Careful(support.Model):
        @property
        def cast_predicate(self) -> Any:
            return lambda name: "bias" not in name

    architecture = novel(Careful)
    architecture.build(describe_novel(architecture).config)
    assert architecture.keeps_dtype("expert_bias")
    assert not architecture.keeps_dtype("any.weight")
