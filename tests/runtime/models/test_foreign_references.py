"""mlx-lm's classes behind our memory answer what transformers answers, and every field that moves the answer
of transformers either moves ours to the same place or is refused by name.

The bar is 1e-4 of the spread of the reference's logits in float32, as for families of our own.
"""

import json
import re
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from runtime.errors import UnsupportedModel, WeightMismatch
from runtime.loaded import LoadedModel
from runtime.models import describe
from runtime.models.foreign.fields import Count, Flag, Number, Words
from tests.support.checkpoints import legacy_config
from tests.support.foreign_references import ForeignReference
from tests.support.parity import cut_logits, full_logits, greedy, ragged_logits

pytestmark = pytest.mark.skipif(find_spec("mlx_lm") is None, reason="mlx-lm is not installed")

BAR = 1e-4
CLEAR = 1e-3  # of the spread: below this margin two right computations may pick different tokens
CHANGES = [
    (name, change)
    for name in ForeignReference.names()
    for change, entry in ForeignReference(name).changes.items()
    if entry["outcome"] != "refused"
]
# Names, ids, training and what is returned: nothing of it is in a logit.
ASIDE = re.compile(
    r"architectures|model_type|\w+_token_id|use_cache|initializer_range|embedding_initializer_range|return_dict|"
    r"output_\w+|is_encoder_decoder|problem_type|chunk_size_feed_forward|\w*pdrop|\w*dropout|rope_parameters|"
    r"moe_loss_weight|mtp_\w+"
)


@pytest.fixture(scope="module", params=ForeignReference.names())
def reference(request: pytest.FixtureRequest) -> ForeignReference:
    return ForeignReference(request.param)


@pytest.fixture(scope="module")
def model(reference: ForeignReference) -> LoadedModel:
    return reference.load()


def test_full_and_cut_into_steps(reference: ForeignReference, model: LoadedModel) -> None:
    ids = reference.answers["ids"]
    assert reference.error(full_logits(model, ids)) < BAR
    for cuts in ([1], [29, 1], [7, 1, 1, 16, 3]):
        assert reference.error(cut_logits(model, ids, cuts)) < BAR


def test_legacy_spelling(reference: ForeignReference) -> None:
    model = reference.load(legacy_config(reference.record["config"]))
    assert reference.error(full_logits(model, reference.answers["ids"])) < BAR


def test_ragged_batch(reference: ForeignReference, model: LoadedModel) -> None:
    ids = reference.answers["ids"]
    for logits in ragged_logits(model, [ids, ids[:21], ids[:30]]):
        assert reference.error(logits) < BAR


def test_greedy(reference: ForeignReference, model: LoadedModel) -> None:
    wanted, margin = reference.answers["greedy"], reference.answers["margin"] / reference.answers["std"]
    close = np.flatnonzero(margin < CLEAR)
    sure = int(close[0]) if len(close) else len(wanted)
    assert greedy(model, reference.answers["ids"][:16], sure) == wanted[:sure].tolist()


def test_a_bfloat16_file_is_computed_in_float32_on_a_processor(
    reference: ForeignReference,
) -> None:
    model = reference.load(rounded=True)
    if model.dtype.size != 4:
        pytest.skip("this device computes in the file's own type")
    assert reference.error(full_logits(model, reference.answers["ids"]), "rounded") < BAR


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=lambda one: str(one))
def test_a_changed_field_acts_or_is_refused_by_name(name: str, change: str) -> None:
    reference = ForeignReference(name)
    refusal = ""
    try:
        model = reference.load_changed(change)
    except (UnsupportedModel, WeightMismatch) as fault:
        refusal, model = str(fault), None
    if model is None:
        assert any(word in refusal for word in _words(reference, change)), refusal
        return
    assert reference.changed_error(change, full_logits(model, reference.answers["ids"])) < BAR


def test_both_spellings_of_every_change_are_read_alike(reference: ForeignReference) -> None:
    for change, entry in reference.changes.items():
        if (
            entry["outcome"] != "refused"
            and len({"rope_scaling", "rope_theta"} & entry["change"].keys()) == 0
        ):
            config = reference.changed(change)
            assert _read(reference, config) == _read(reference, legacy_config(config)), change


def _read(reference: ForeignReference, config: dict[str, Any]) -> Any:
    try:
        return reference.kind.read(config)
    except UnsupportedModel:
        return "refused"


def test_every_field_of_transformers_is_read_or_moves_nothing(reference: ForeignReference) -> None:
    moved = {
        field
        for entry in reference.changes.values()
        if entry["outcome"] == "moved"
        for field in entry["change"]
        if len(entry["change"]) == 1
    }
    tried = {field for entry in reference.changes.values() for field in entry["change"]}
    read = set(reference.kind.fields)
    for field in _flat(reference.record["defaults"]):
        if field in read or ASIDE.fullmatch(field.rpartition(".")[2]):
            continue
        outer = field.partition(".")[0]
        assert outer in tried, f"nobody knows what {field} does"
        assert "." in field or outer not in moved, f"{field} moves transformers' answer and is not read"


def test_defaults_are_those_of_transformers(reference: ForeignReference) -> None:
    defaults = _flat(reference.record["defaults"])
    for name, field in reference.kind.fields.items():
        if name in defaults and not isinstance(field, Words):
            assert field.default == defaults[name], name


def test_every_field_that_may_vary_was_varied(reference: ForeignReference) -> None:
    """And ours went where transformers went: at least one stored change of it is not refused."""
    varied: set[str] = set()
    for change, entry in reference.changes.items():
        if entry["outcome"] == "refused":
            continue
        try:
            describe(reference.changed(change))
        except UnsupportedModel:
            continue
        before = _flat(reference.record["config"])
        varied |= {name for name, x in _flat(reference.changed(change)).items() if x != before.get(name)}
    may = {name for name, field in reference.kind.fields.items() if isinstance(field, Count | Number | Flag)}
    assert not may - varied


def test_ropes_that_are_proven_were_tried(reference: ForeignReference) -> None:
    if reference.kind.ropes is None:
        return
    tried = {
        word
        for change, entry in reference.changes.items()
        for word in re.findall(r'"rope_type": "(\w+)"', json.dumps(entry["change"]))
        if entry["outcome"] == "moved" and _runs(reference, change)
    }
    assert set(reference.kind.ropes.types) <= tried


def _runs(reference: ForeignReference, change: str) -> bool:
    try:
        describe(reference.changed(change))
    except UnsupportedModel:
        return False
    return True


def _words(reference: ForeignReference, change: str) -> set[str]:
    """Names that a refusal may bring up: of fields that were changed, and of tensors that came or went."""
    entry = reference.changes[change]
    before, after = _flat(reference.record["config"]), _flat(reference.changed(change))
    fields = {part for name, value in after.items() if value != before.get(name) for part in name.split(".")}
    return fields - {"rope_parameters"} | set(entry.get("tensors", {}))


def _flat(config: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(config, dict):
        return {path: config}
    return {
        name: value
        for key, inner in config.items()
        for name, value in _flat(inner, f"{path}.{key}" if path else key).items()
    }
