"""A field of config.json that changes what transformers answers acts here too, or is refused by its name.

And one that changes nothing there changes nothing here. Fields, values and answers were found by asking
transformers (`tests/support/make_field_references.py`), not thought up.
"""

import pytest

from tests.support.field_answers import FieldAnswers


@pytest.fixture(scope="module", params=FieldAnswers.names())
def answers(request: pytest.FixtureRequest) -> FieldAnswers:
    return FieldAnswers(request.param)


def test_what_acts_in_transformers_acts_or_is_refused(answers: FieldAnswers) -> None:
    faults = {f"{case.field}={case.value}": answers.fault(case) for case in answers.moving()}
    assert not {case: fault for case, fault in faults.items() if fault}


def test_what_does_not_act_in_transformers_changes_nothing(answers: FieldAnswers) -> None:
    faults = {f"{case.field}={case.value}": answers.fault(case) for case in answers.still()}
    assert not {case: fault for case, fault in faults.items() if fault}
