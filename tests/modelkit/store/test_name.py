"""Names: Ollama's grammar, hostile text, and the round trips through display and through index.json."""

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.address import has_scheme, looks_like_path
from modelkit.errors import InvalidName
from modelkit.store import Name, valid_name_from

PART = st.from_regex(r"[a-z0-9_]([a-z0-9_-]|\.(?=[a-z0-9_-])){0,20}", fullmatch=True)
NAMESPACE = st.from_regex(r"[a-z0-9_][a-z0-9_-]{0,20}", fullmatch=True)
RESERVED = re.compile(r"(^|[/:])(con|prn|aux|nul|(com|lpt)[1-9])([/:]|$)")
HOST = st.from_regex(r"[a-z0-9]{1,9}(\.[a-z0-9]{1,5}){0,2}(:[0-9]{1,5})?", fullmatch=True)


@st.composite
def every_name(draw: st.DrawFn) -> str:
    """Every shape of valid name: with and without host, namespace, tag."""
    prefix = draw(st.sampled_from(["", "n", "hn"]))
    text = "".join(f"{draw(HOST if part == 'h' else NAMESPACE)}/" for part in prefix) + draw(PART)
    return text + draw(st.one_of(st.just(""), PART.map(lambda tag: f":{tag}")))


NAMES = every_name().filter(lambda text: not RESERVED.search(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("story", Name("", "", "story", "latest")),
        ("story:q4", Name("", "", "story", "q4")),
        ("amy/story", Name("", "amy", "story", "latest")),
        ("library/story:q4", Name("", "", "story", "q4")),
        ("ollama.com/library/story", Name("", "", "story", "latest")),
        ("Registry.Ollama.AI/amy/story:q4", Name("", "amy", "story", "q4")),
        ("ollama.com/story", Name("", "", "story", "latest")),
        ("Library/Story", Name("", "", "story", "latest")),
        ("example.org/library/story", Name("example.org", "library", "story", "latest")),
        ("library", Name("", "", "library", "latest")),
        ("h/n/m:t", Name("h", "n", "m", "t")),
        ("localhost:5000/n/m", Name("localhost:5000", "n", "m", "latest")),
        ("hf.co/Qwen/Qwen3-0.6B:Q4_K_M", Name("hf.co", "qwen", "qwen3-0.6b", "q4_k_m")),
        ("_why/_the/_lucky:_stiff", Name("_why", "_the", "_lucky", "_stiff")),
    ],
)
def test_a_name_is_read_from_right_to_left(text: str, expected: Name):
    assert Name.parse(text) == expected


HOSTILE = """
 :|a:|:a|/|//|/m|m/|/n/m|a//b|a/b/c/d|-rf|.|..|.hidden|../x|a/../../b|a/../b|a/./b|a:../../x|a..b|a.|a:b.|m:t/x
 a@sha256:..|library/x\n|x\t|%2e%2e|n.s/m|h/na:me/m:t|a b|a\\b|c:\\x|con|amy/nul|x:com1|https://h/n/m|a\x00b
 a\u202eb|modèle|mode\u0300le|\u212aelvin|\uff4d|٣|h:port/n/m|h:/n/m|h:123456/n/m|a:b:c
""".strip(" \n")


@pytest.mark.parametrize(
    "text", ["", "a" * 81, f"a:{'t' * 81}", "a" * 10**6, *re.split(r"\||\n (?=[am])", HOSTILE)]
)
def test_what_is_no_name_is_refused_in_one_short_line(text: str):
    with pytest.raises(InvalidName) as caught:
        Name.parse(text)
    assert len(caught.value.message) < 5000
    assert caught.value.message.isprintable()
    # A letter that looks like one of ours is told apart by its number.
    assert caught.value.message.isascii() or "(U+" in caught.value.message


def test_a_name_with_an_adapter_is_told_where_that_is_chosen():
    """`run island+style`, as `compare` and a server's clients have it."""
    with pytest.raises(InvalidName) as caught:
        Name.parse("island+style")
    assert "by --adapter, in Python by `adapters`" in str(caught.value.hint)


@pytest.mark.parametrize("text", ["./folder", "../m.gguf", "/a/b/c/d.gguf", "~/model"])
def test_a_path_is_called_one_where_only_packages_are_named(text: str):
    """`show ./m.gguf`: "its namespace begins with '.'"."""
    with pytest.raises(InvalidName, match="is not a model name: it is a path") as caught:
        Name.parse(text)
    assert "modelkit create NAME" in str(caught.value.hint)


def test_names_compare_without_case():
    assert Name.parse("Amy/Story:Q4") == Name.parse("amy/story:q4")


def test_only_the_default_tag_is_left_out_of_sentences_and_none_out_of_tables():
    assert str(Name.parse("story:latest")) == "story"
    assert Name.parse("story").short == "story:latest"
    assert str(Name.parse("story:q4")) == Name.parse("story:q4").short == "story:q4"


def test_what_sentences_show_is_never_a_path():
    """`created story.gguf` was followed by `run story.gguf`, which looked for a file."""
    assert str(Name.parse("story.gguf")) == "story.gguf:latest"
    assert str(Name.parse("hf.co/amy/story.gguf")) == "hf.co/amy/story.gguf"  # an address


@pytest.mark.parametrize(
    "text", ["ollama", "Ollama:x", "hf:80/amy/story", "ollama:80/amy/story:q4", "x:y.gguf"]
)
def test_no_package_gets_a_name_that_means_something_else(text: str):
    """`created ollama:x` was followed by `run ollama:x`, which asked Ollama's folder for its model x."""
    with pytest.raises(InvalidName, match=r"^no package can be called '.*': '?(ollama:|hf:|it ends as)"):
        Name.new(text)
    assert Name.parse(text)  # it can be removed and copied from, where it is there already


@given(NAMES)
def test_the_name_of_a_new_package_means_that_wherever_models_are_named(text: str):
    with contextlib.suppress(InvalidName):
        name = Name.new(text)
        for shown in (str(name), name.short):
            assert not looks_like_path(shown)
            assert not has_scheme(shown)


@given(NAMES)
def test_display_and_ref_read_back_as_the_same_name(text: str):
    name = Name.parse(text)
    assert Name.parse(str(name)) == Name.parse(name.short) == name
    assert Name.from_ref(name.full) == name


@given(NAMES)
def test_a_ref_keeps_to_the_oci_grammar(text: str):
    ref = Name.parse(text).full
    component = r"[A-Za-z0-9]+(([-._:@+]|--)[A-Za-z0-9]+)*"
    assert re.fullmatch(rf"{component}(/{component})*", ref)


def test_usual_names_are_their_own_refs():
    for text in ("story:latest", "localhost:5000/amy/my_story-2.5:q4_k_m"):
        assert Name.parse(text).full == text


@given(st.text())
def test_parsing_any_text_gives_a_name_or_invalid_name(text: str):
    with contextlib.suppress(InvalidName):
        assert Name.parse(text).short.isascii()


@pytest.mark.parametrize("ref", [None, 7, "", "hex@", "hex@zz", "hex@ff", "hex@2e2e", "../x", "a b"])
def test_a_ref_that_spells_no_name_is_none(ref: object):
    assert Name.from_ref(ref) is None


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("My Model!", "my-model"),
        ("story", "story"),
        ("  Qwen3-0.6B (chat) ", "qwen3-0.6b-chat"),
        ("modèle", "modele"),
        ("日本 2", "2"),
        ("a__b", "a_b"),
        ("v1..2", "v1.2"),
        ("x" * 200, "x" * 80),
    ],
)
def test_a_folder_gives_a_valid_name(folder: str, name: str):
    assert str(valid_name_from(folder)) == name


@pytest.mark.parametrize("folder", ["日本", "модель", "..", "", "nul"])
def test_a_folder_with_nothing_for_a_name_is_refused(folder: str):
    """One name for all of them would be one package."""
    with pytest.raises(InvalidName, match="no package can be called like the folder") as refused:
        valid_name_from(folder)
    assert refused.value.hint == "Give the package a name."


@given(st.text())
def test_any_text_gives_a_valid_name_or_none(text: str):
    with contextlib.suppress(InvalidName):
        name = valid_name_from(text)
        assert Name.parse(str(name)) == name
