"""An answer in its grammar: where it ends, how far it goes back, and with what else of a request it works."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from modelkit.errors import RequestError
from modelkit.grammars.compiling.compiler import Grammars
from modelkit.grammars.forms import Form, read_form
from modelkit.model import Model
from modelkit.tokenizer import load_tokenizer
from runtime.sampling.constraint import ConstraintFault, allows
from tests.support.forms import PERSON, matcher_of
from tests.support.tiny import write_tokenizer


def test_the_answer_is_the_same_however_far_is_guessed(model: Model) -> None:
    asked: dict[str, Any] = {"format": PERSON, "seed": 7, "num_predict": 500, "repeat_penalty": 1.1}
    plain = model.chat([{"role": "user", "content": "Who?"}], draft_num_predict=0, **asked)
    guessing = model.chat([{"role": "user", "content": "Who?"}], **asked)
    assert guessing.text == plain.text
    jsonschema.validate(json.loads(plain.text), PERSON)


def test_a_regular_expression_is_matched_as_a_whole(model: Model) -> None:
    answer = model.generate("hello", regex="[a-c]{3,5}(é|ü)", seed=1, num_predict=50)
    assert re.fullmatch("[a-c]{3,5}(é|ü)", answer.text)


def test_stop_strings_and_log_probabilities_stay_at_work(model: Model) -> None:
    answer = model.generate("hello", regex="a{3}b{50}", stop="bb", top_logprobs=2, seed=1)
    assert (answer.text, answer.stop, answer.reason) == ("aaa", "bb", "stop")
    assert len(answer.logprobs) == len(answer.ids)


def test_every_stop_id_may_end_the_answer_and_spare_ids_never_come(tmp_path: Path) -> None:
    matcher = matcher_of(tmp_path, Form("regex", "regex", "[a-z]+"), frozenset({256, 7}))
    begun = matcher.mask()
    assert not allows(begun, 256)
    matcher.advance(next(token for token in range(256) if allows(begun, token)))
    mask = matcher.mask()
    assert allows(mask, 256)
    assert allows(mask, 7)
    assert not any(allows(mask, token) for token in range(257, 320))


def test_without_stop_ids_an_answer_ends_when_nothing_can_follow(tmp_path: Path) -> None:
    matcher = matcher_of(tmp_path, Form("regex", "regex", "ab?"), frozenset())
    for left in (False, True):
        mask = matcher.mask()
        allowed = [token for token in range(320) if allows(mask, token)]
        assert len(allowed) == 1
        matcher.advance(allowed[0])
        assert matcher.ended is left


@pytest.mark.parametrize("tokens", [256, 100])
def test_without_stop_ids_no_token_is_taken_for_an_end(tmp_path: Path, tokens: int) -> None:
    """`!` is the first of all tokens."""
    write_tokenizer(tmp_path, tokens)
    grammars = Grammars(
        load_tokenizer({"tokenizer.json": tmp_path / "tokenizer.json"}), tokens + 1, frozenset()
    )
    matcher = grammars.compile(Form("regex", "regex", "!!")).matcher()
    for _ in range(2):
        assert not matcher.ended
        assert [token for token in range(tokens + 1) if allows(matcher.mask(), token)] == [0]
        matcher.advance(0)
    assert matcher.ended
    with pytest.raises(RequestError, match="nothing but an empty text"):
        grammars.compile(Form("grammar", "lark", 'start: ""'))


def test_a_matcher_goes_back_to_where_it_was(tmp_path: Path) -> None:
    matcher = matcher_of(tmp_path, Form("format", "schema", json.dumps(PERSON)), frozenset({256}))
    masks: list[bytes] = []
    taken: list[int] = []
    for _ in range(12):
        masks.append(matcher.mask())
        taken.append(next(token for token in range(320) if allows(masks[-1], token)))
        matcher.advance(taken[-1])
    matcher.back(7)
    assert matcher.mask() == masks[5]
    refused = next(token for token in range(320) if not allows(masks[5], token))
    with pytest.raises(ConstraintFault):
        matcher.advance(refused)
    matcher.back(0)
    assert matcher.mask() == masks[5]
    matcher.advance(taken[5])
    assert matcher.mask() == masks[6]


def test_it_goes_back_over_an_end_that_is_a_text_as_well(tmp_path: Path) -> None:
    """Into the middle of a letter."""
    end, *opened, first, second = 2, 90, 1, 127, 102  # `#`, `{"`, and the two bytes of `é`
    matcher = matcher_of(tmp_path, Form("format", "schema", '{"type": "object"}'), frozenset({end}))
    for token in (*opened, first):
        matcher.advance(token)
    mask = matcher.mask()
    for token in (second, end):
        assert allows(matcher.mask(), token)
        matcher.advance(token)
    matcher.back(2)
    assert matcher.mask() == mask
    matcher.advance(second)


def test_equal_forms_are_compiled_once(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    grammars = Grammars(
        load_tokenizer({"tokenizer.json": tmp_path / "tokenizer.json"}), 320, frozenset({256})
    )
    forms = [read_form(dict(PERSON)), read_form(json.dumps(PERSON))]
    assert forms[0] == forms[1]
    assert forms[0] is not None
    assert grammars.compile(forms[0]) is grammars.compile(Form(forms[0].option, "schema", forms[0].text))
