"""Parameters: what is accepted, what is refused and why, and that equal settings are equal values."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.errors import ParameterError
from modelkit.modelfile import PARAMETERS, REFUSED, Parameter, Parameters, check_parameter, parse_parameter

OLLAMA = """num_keep seed num_predict top_k repeat_last_n num_ctx num_batch num_gpu main_gpu num_thread
draft_num_predict top_p min_p typical_p temperature repeat_penalty presence_penalty frequency_penalty use_mmap
penalize_newline low_vram f16_kv logits_all vocab_only use_mlock mirostat mirostat_tau mirostat_eta numa
num_gqa stop"""

rows = st.sampled_from(list(PARAMETERS.values()))


def values(row: Parameter) -> st.SearchStrategy[object]:
    if row.kind == "strings":
        return st.lists(st.text(min_size=1, max_size=256), min_size=1, max_size=16)
    if row.kind == "choice":
        return st.sampled_from(row.choices)
    if row.kind == "word":
        return st.from_regex(r"[A-Za-z0-9_-]{1,32}", fullmatch=True)
    if row.kind == "int":
        return st.integers(int(row.minimum), int(row.maximum))
    return st.floats(row.minimum, row.maximum, exclude_min=row.above)


parameters = st.fixed_dictionaries({}, optional={n: values(row) for n, row in PARAMETERS.items()}).map(
    Parameters
)


def refusal(name: str, value: object) -> str:
    with pytest.raises(ParameterError) as caught:
        check_parameter(name, value)
    return str(caught.value)


@pytest.mark.parametrize("name", OLLAMA.split())
def test_every_name_of_ollama_is_honoured_or_refused(name: str):
    assert (name in PARAMETERS) != (name in REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_name_says_why_and_what_to_do(name: str):
    assert refusal(name, 1) == f"parameter {name} has no meaning here: {REFUSED[name]}\nLeave it out."


def test_unknown_name_suggests_the_nearest():
    assert refusal("Temprature", 1) == "unknown parameter 'Temprature'\nDid you mean temperature?"


def test_adapters_are_no_parameter_and_the_option_is_named():
    assert "--adapter NAME[=SCALE]" in refusal("adapters", "law=0.8")


def test_unknown_name_without_a_near_one_lists_all():
    assert "The parameters are temperature, top_k" in refusal("zzz", 1)


@pytest.mark.parametrize("row", PARAMETERS.values(), ids=lambda row: row.name)
def test_default_is_a_legal_value(row: Parameter):
    if row.default is not None:
        assert check_parameter(row.name, row.default) == row.default


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("temperature", "1", 1.0),
        ("temperature", "+.5", 0.5),
        ("temperature", "7e-1", 0.7),
        ("top_p", "1.", 1.0),
        ("top_k", "0", 0),
        ("seed", "-1", -1),
        ("seed", "9223372036854775807", 2**63 - 1),
        ("num_ctx", "+4096", 4096),
        ("stop", " <|end|> ", (" <|end|> ",)),
        ("stop", "0.7", ("0.7",)),
    ],
)
def test_text_is_read_as_its_type(name: str, text: str, value: object):
    assert (parse_parameter(name, text), type(parse_parameter(name, text))) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("temperature", ""),
        ("temperature", "nan"),
        ("temperature", "inf"),
        ("temperature", "1e999"),
        ("temperature", "-0.1"),
        ("temperature", "100.5"),
        ("temperature", "0x1"),
        ("temperature", "0,7"),
        ("temperature", "1_0"),
        ("temperature", "1" * 100_000),
        ("top_p", "0"),
        ("typical_p", "0"),
        ("repeat_penalty", "0"),
        ("min_p", "1.01"),
        ("num_ctx", "0"),
        ("num_ctx", "-1"),
        ("num_ctx", "1e9"),
        ("num_ctx", "1 2"),
        ("num_ctx", "4096.0"),
        ("num_ctx", "٤٠٩٦"),
        ("num_ctx", "9" * 100_000),
        ("num_predict", "-2"),
        ("repeat_last_n", "-2"),
        ("top_k", "-1"),
        ("seed", "9223372036854775808"),
        ("stop", ""),
        ("stop", "x" * 257),
    ],
)
def test_text_that_spells_no_such_value_is_refused(name: str, text: str):
    with pytest.raises(ParameterError, match=f"expected {PARAMETERS[name].expected}") as caught:
        parse_parameter(name, text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "0.7"),
        ("temperature", True),
        ("temperature", np.True_),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", None),
        ("temperature", 10**400),
        ("num_ctx", True),
        ("num_ctx", 4096.0),
        pytest.param("num_ctx", 10**10_000, id="too long to print"),
        ("stop", 7),
        ("stop", [""]),
        ("stop", ["a", 7]),
        ("stop", ["a"] * 17),
        ("stop", "\ud800"),
    ],
)
def test_value_of_another_type_or_range_is_refused(name: str, value: object):
    assert f"expected {PARAMETERS[name].expected}" in refusal(name, value)


def test_refusal_says_what_is_and_what_was_expected():
    assert refusal("top_p", 0) == "top_p is 0, expected a number above 0 to 1"


def test_whole_number_and_float_are_one_setting():
    assert json.dumps(Parameters({"temperature": 1}).to_json()) == '{"temperature": 1.0}'


@pytest.mark.parametrize(
    ("name", "value", "plain"),
    [("seed", np.int64(7), 7), ("top_k", np.uint8(7), 7), ("temperature", np.float32(0.5), 0.5)],
)
def test_numpys_numbers_are_numbers(name: str, value: object, plain: float):
    found = check_parameter(name, value)
    assert found == plain
    assert type(found) is type(plain)


def test_minus_zero_is_zero():
    assert math.copysign(1, Parameters({"temperature": -0.0}).resolved().temperature) == 1


def test_one_stop_string_may_stand_alone():
    assert Parameters({"stop": "###"}) == Parameters({"stop": ["###"]})


def test_stop_strings_add_up():
    assert Parameters().added("stop", "a").added("stop", "b")["stop"] == ("a", "b")


def test_seventeenth_stop_string_is_refused():
    sixteen = Parameters({"stop": [str(n) for n in range(16)]})
    with pytest.raises(ParameterError, match="17 texts"):
        sixteen.added("stop", "one more")


def test_any_other_name_appears_once():
    with pytest.raises(ParameterError, match=r"seed is set twice: 1 and 2"):
        Parameters().added("seed", "1").added("seed", "2")


def test_merge_lets_the_other_win_and_replaces_stop_as_a_list():
    base = Parameters({"seed": 1, "top_k": 5, "stop": ["a", "b"]})
    assert base.merge(Parameters({"seed": 2, "stop": ["c"]})) == {"seed": 2, "top_k": 5, "stop": ("c",)}


def test_resolved_fills_in_the_defaults():
    resolved = Parameters({"temperature": 0}).resolved()
    assert (resolved.temperature, resolved.top_k, resolved.num_ctx, resolved.stop) == (0.0, 40, None, ())


def test_order_of_setting_does_not_matter():
    one, two = Parameters({"seed": 1, "top_k": 2}), Parameters({"top_k": 2, "seed": 1})
    assert (hash(one), list(one), repr(one)) == (hash(two), list(two), repr(two))


@pytest.mark.parametrize("value", [None, [], "x", {"num_gpu": 1}, {"seed": "1"}, {"stop": {"a": 1}}])
def test_foreign_json_is_checked(value: object):
    with pytest.raises(ParameterError):
        Parameters.from_json(value)


@given(parameters)
def test_json_round_trip(given_parameters: Parameters):
    text = json.dumps(given_parameters.to_json())
    assert Parameters.from_json(json.loads(text)) == given_parameters
    assert list(json.loads(text)) == sorted(given_parameters)


@given(parameters)
def test_text_round_trip(given_parameters: Parameters):
    again = Parameters()
    for name, text in given_parameters.texts():
        again = again.added(name, text)
    assert again == given_parameters


@given(rows.map(lambda row: row.name), st.text(max_size=40) | st.integers().map(str) | st.floats().map(str))
def test_any_text_is_read_or_refused(name: str, text: str):
    try:
        value = parse_parameter(name, text)
    except ParameterError:
        return
    assert check_parameter(name, value) == value
