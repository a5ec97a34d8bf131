"""Text <-> directives: our own cases (data/), Ollama's verdicts, and what holds for every text."""

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkit.errors import ModelfileError
from modelkit.modelfile import Modelfile, syntax
from modelkit.modelfile.directives import DIRECTIVES, ROLES
from modelkit.modelfile.syntax import Directive

DATA = Path(__file__).parent / "data"
KEYWORDS = [keyword.lower() for keyword in DIRECTIVES]

awkward = st.text(alphabet='""" \t\r\na#\u00a0\u200d\u2028\x00', max_size=24) | st.text(max_size=40)
values = awkward.filter(lambda text: not syntax._UNQUOTABLE.search(text))  # pyright: ignore[reportPrivateUsage] - the rule itself


@st.composite
def directives(draw: st.DrawFn) -> Directive:
    row = draw(st.sampled_from(list(DIRECTIVES.values())))
    name = None
    if row.named == "role":
        name = draw(st.sampled_from(ROLES))
    elif row.named == "name":
        name = draw(st.from_regex(r"[A-Za-z0-9_]{1,12}", fullmatch=True))
    return Directive(row.keyword, draw(values), name=name)


def read(text: str) -> str:
    """The value of the one directive SYSTEM that `text` holds."""
    (directive,) = syntax.parse(f"SYSTEM {text}")
    return directive.value


def error(text: str) -> ModelfileError:
    with pytest.raises(ModelfileError) as caught:
        syntax.parse(text)
    return caught.value


@pytest.mark.parametrize("case", KEYWORDS)
def test_directive_is_read_with_its_place(case: str):
    found = syntax.parse((DATA / "valid" / f"{case}.modelfile").read_text())
    expected = json.loads((DATA / "valid" / f"{case}.json").read_text())
    assert [
        {f: getattr(d, f) for f in ("keyword", "name", "value", "line", "column")} for d in found
    ] == expected


@pytest.mark.parametrize("case", KEYWORDS)
def test_mistake_is_named_with_place_and_remedy(case: str):
    expected = (DATA / "invalid" / f"{case}.txt").read_text().removesuffix("\n")
    assert str(error((DATA / "invalid" / f"{case}.modelfile").read_text())) == f"Modelfile:{expected}"


@pytest.mark.parametrize("row", DIRECTIVES.values(), ids=lambda row: row.keyword)
def test_example_of_the_table_is_valid(row: Any):
    (directive,) = syntax.parse(row.example)
    assert (directive.keyword, syntax.format([directive])) == (row.keyword, f"{row.example}\n")


# Where an issue asks for better than Ollama's parser: the text, and what stands here instead.
OURS: dict[bytes, Any] = {
    b"FROM a\nSYSTEM\nhi": "2:1",  # the line of the keyword, not the next one
    b"FROM a\nPARAMETER  num_ctx   7  ": [["model", "a"], ["num_ctx", "7"]],
    "FROM a\nSYSTEM \0x\7y\u200bz".encode(): [["model", "a"], ["system", "\0x\7y\u200bz"]],
    "FROM a\nSYSTEM x\u00a0y".encode(): [["model", "a"], ["system", "x\u00a0y"]],
    b"FROM a\nSYSTEM \xff\xfe bad": "2:8",  # bytes that are not text
    b"FROM a\nSYSTEM h\xe9": "2:9",
    "FROM a\nSYSTEM hé".encode("utf-16-le"): "2:18",
    "FROM a\nSYSTEM hé".encode("utf-16-be"): "2:18",
}


def as_ollama_says(modelfile: Modelfile) -> list[list[str]]:
    def command(d: Directive) -> list[str]:
        match d.keyword:
            case "FROM":
                return ["model", d.value]
            case "PARAMETER":
                return [d.name or "", d.value]
            case "MESSAGE":
                return ["message", f"{d.name}: {d.value}"]
            case _:
                return [d.keyword.lower(), d.value]

    return [command(d) for d in modelfile.directives]


def verdict(data: bytes) -> tuple[Any, str]:
    try:
        modelfile = Modelfile.parse(syntax.decode(data))
    except ModelfileError as refused:
        return f"{refused.line}:{refused.column}", ""
    return as_ollama_says(modelfile), str(modelfile)


def test_agrees_with_ollama_but_where_it_should_be_better(shared_data: Path):
    seen = 0
    for line in (shared_data / "modelfile_cases.jsonl").read_text().splitlines():
        case = json.loads(line)
        data = base64.b64decode(case["b64"]) if "b64" in case else case["text"].encode()
        found, rendered = verdict(data)
        if data in OURS:
            assert found == OURS[data], data
        elif case["ok"]:
            assert (found, rendered) == (case["commands"], case["render"]), data
        else:
            assert isinstance(found, str), data
            assert found.startswith(f"{case.get('line', '')}"), data
        seen += 1
    assert seen == 91


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("  two  words \t", "two  words"),
        ('"  inside  "  ', "  inside  "),
        ('""', ""),
        ('""""""', ""),
        ('"\'"', "'"),
        ("'single'", "'single'"),
        ('"a" b "c"', 'a" b "c'),
        ('"a\\"b"', 'a\\"b'),
        ('"""a"""b"""', 'a"""b'),
        ('""""quoted""""', '"quoted"'),
        ('"""\r\nkept\r\n"""', "\r\nkept\r\n"),
        ('"one\rtwo" \t', "one\rtwo"),
        ('"""ends with a quote"\n"""', 'ends with a quote"\n'),
        ("\u00a0kept\u3000", "\u00a0kept\u3000"),
        ("👩\u200d🚀 می\u200cخواهم", "👩\u200d🚀 می\u200cخواهم"),
        ("form\x0cfeed\x85\u2028", "form\x0cfeed\x85\u2028"),
        ("#no comment", "#no comment"),
    ],
)
def test_value_is_kept_to_the_character(text: str, value: str):
    assert read(text) == value


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_every_line_ending_counts_as_one_line(end: str):
    text = end.join(["FROM a", "", 'SYSTEM "one', 'two"', "# note", "  BAD x"])
    assert (error(text).line, error(text).column) == (6, 3)


def test_long_s_is_not_an_s():
    assert "is not a directive" in str(error("ſYSTEM x"))


@pytest.mark.parametrize("word", ["temperature", "TOP_K", "Stop"])
def test_a_parameter_without_its_keyword_is_told_so(word: str):
    name = word.lower()
    assert f"{name} is a parameter: PARAMETER {name} VALUE" in str(error(f"{word} 1"))


def test_parameter_never_passes_for_a_directive():
    (directive,) = syntax.parse("PARAMETER from x")
    assert (directive.keyword, directive.name) == ("PARAMETER", "from")


def test_control_characters_never_reach_the_terminal():
    assert "\x1b" not in str(error("\x1b]52;c;x\x07 y"))


def test_a_message_stays_short_whatever_the_text():
    assert len(str(error("x" * 100_000))) < 300


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-8", "utf-16-le", "utf-16-be"])
def test_byte_order_marks_are_honoured(encoding: str):
    text = "FROM a\n\tSYSTEM 你好 👋\n"
    mark = "\ufeff" if encoding.startswith("utf-16") else ""
    assert syntax.decode((mark + text).encode(encoding)) == text


def test_a_mark_in_a_string_is_no_character_of_the_first_line():
    assert syntax.parse("\ufeffFROM a")[0].column == 1


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"\xff", (1, 1)),
        (b"FROM a\r\nSYSTEM \xed\xa0\x80", (2, 8)),
        (b"\xff\xfeF", (1, 1)),
        (b"\xef\xbb\xbfA\xc3", (1, 2)),
    ],
)
def test_bytes_that_are_no_text_are_named_with_their_place(data: bytes, place: tuple[int, int]):
    with pytest.raises(ModelfileError) as caught:
        syntax.decode(data)
    assert (caught.value.line, caught.value.column) == place


def test_utf_16_without_a_mark_is_recognised():
    assert "UTF-16" in str(error(syntax.decode("FROM a".encode("utf-16-le"))))


def test_half_a_surrogate_pair_is_refused():
    assert (error("FROM a\nSYSTEM \ud83d").line, error("FROM a\nSYSTEM \ud83d").column) == (2, 8)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Directive("from", "a"),
        lambda: Directive("INCLUDE", "a"),
        lambda: Directive("FROM", "a", name="b"),
        lambda: Directive("PARAMETER", "1"),
        lambda: Directive("PARAMETER", "1", name="a b"),
        lambda: Directive("MESSAGE", "hi", name="tool"),
        lambda: Directive("SYSTEM", "\ud83d"),
        lambda: Directive("SYSTEM", 'a doc string """ \nand more'),
        lambda: Directive("SYSTEM", 'a doc string """ # a remark\nand more'),
    ],
)
def test_a_directive_that_no_modelfile_can_hold_is_refused(make: Any):
    with pytest.raises(ModelfileError):
        make()


def test_place_is_not_part_of_equality():
    assert Directive("FROM", "a") == Directive("FROM", "a", line=3, column=2)


@given(st.lists(directives(), max_size=5).map(tuple))
@settings(max_examples=400)
def test_parse_reads_back_what_format_writes(written: tuple[Directive, ...]):
    assert syntax.parse(syntax.format(written)) == written


fragments = st.sampled_from(
    ["FROM a", "SYSTEM ", "PARAMETER stop ", "MESSAGE user ", '"', '"""', "\n", "\r", "\r\n", " ", "#", "x"]
)


@given(st.lists(fragments, max_size=14).map("".join) | st.text())
@settings(max_examples=400)
def test_any_text_is_read_or_refused_and_its_form_is_stable(text: str):
    with contextlib.suppress(ModelfileError):
        directives = syntax.parse(text)
        written = syntax.format(directives)
        assert syntax.parse(written) == directives
        assert syntax.format(syntax.parse(written)) == written


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes):
    with contextlib.suppress(ModelfileError):
        syntax.parse(syntax.decode(data))


@pytest.mark.parametrize(
    "text",
    [
        'SYSTEM """' + '" \n' * 300_000,
        'SYSTEM "' + '"" x\n' * 200_000,
        "#\n" * 500_000,
        "FROM " + " " * 10**6,
    ],
)
def test_a_large_text_does_not_hang(text: str):
    with contextlib.suppress(ModelfileError):
        syntax.parse(text)


def test_all_lines_at_fault_are_told_at_once() -> None:
    text = """FORM ./a
SYSTM \"\"\"a text of
FROM several lines\"\"\"
FROM ./a
MESSAGE nobody hello
PARAMETER to-p 1
SYSTEM
PARAMETER temperature 0.5
"""
    with pytest.raises(ModelfileError) as caught:
        syntax.parse(text)
    assert (caught.value.line, caught.value.column) == (1, 1)
    told = str(caught.value)
    for place, said in (
        ("Modelfile:1:1", "'FORM' is not a directive"),
        ("Modelfile:2:1", "'SYSTM' is not a directive"),
        ("Modelfile:5:9", "'nobody' is not a role"),
        ("Modelfile:6:11", "'to-p' is not a parameter name"),
        ("Modelfile:7:1", "SYSTEM needs"),
    ):
        assert f"{place}: {said}" in told
    assert "Modelfile:3" not in told, "that is inside of a text"
    assert "Modelfile:8" not in told


def test_a_text_that_never_closes_ends_what_is_told() -> None:
    with pytest.raises(ModelfileError) as caught:
        syntax.parse('FORM x\nSYSTEM """a\nTHIS is text\n')
    told = str(caught.value)
    assert "never closes" in told
    assert "FORM" in told
    assert "THIS" not in told


def test_a_file_that_is_no_modelfile_is_not_told_at_length() -> None:
    with pytest.raises(ModelfileError) as caught:
        syntax.parse("x y\n" * 100_000)
    assert len(str(caught.value)) < 4_000
    assert "and more" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ('PARAMETER stop "<|end|>"   # of a turn', 28),
        ('SYSTEM """Be brief.""" # really', 24),
        ('LICENSE "MIT"\t#', 15),
    ],
)
@pytest.mark.parametrize("rest", ["", '\nSYSTEM "two"\n', '\nLICENSE """three"""'])
def test_a_comment_behind_quotes_swallows_nothing(line: str, column: int, rest: str):
    """Read on to the next quotes at the end of a line, all that stands before them would be the value."""
    found, faults = syntax.scan(f"FROM a\n{line}{rest}\nPARAMETER top_k 1")
    assert [(fault.line, fault.column) for fault in faults] == [(2, column)]
    assert "a comment behind a quoted text" in faults[0].message
    assert [one.keyword for one in found] == ["FROM", *rest.split()[:1], "PARAMETER"]


@pytest.mark.parametrize(
    "value",
    ['a" # b', 'one\ntwo" # three', 'a """ # b', 'one\ntwo""" # three', '"a" # b\nc"""#', '"""# a\nb'],
)
def test_other_quotes_before_a_sharp_are_kept(value: str):
    directive = Directive("SYSTEM", value)
    assert syntax.parse(syntax.format([directive])) == (directive,)
