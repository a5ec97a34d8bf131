"""What a Modelfile means: paths and names, repeats, Go templates, versions; every error at its own line."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.errors import ModelfileError, TemplateError
from modelkit.modelfile import Modelfile, Parameters, Recipe
from modelkit.modelfile.go import is_go


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("target", "assistant", "lora one", "lora2"):
        (tmp_path / name).mkdir()
    (tmp_path / "model.safetensors").touch()
    return tmp_path


def meaning(text: str, folder: Path) -> Recipe:
    return Modelfile.parse(text).recipe(folder)


def refusal(text: str, folder: Path) -> str:
    with pytest.raises(ModelfileError) as caught:
        meaning(text, folder)
    return str(caught.value)


def test_everything_said_is_in_the_recipe(folder: Path):
    text = """
FROM ./target
DRAFT ./assistant
ADAPTER lora one
ADAPTER ./lora2
PARAMETER temperature 0.5
PARAMETER stop a
PARAMETER stop "b "
TEMPLATE {% for m in messages %}{{ m.content }}{% endfor %}
SYSTEM Be brief.
LICENSE MIT
LICENSE Apache-2.0
MESSAGE user Hi
MESSAGE assistant Hello: you
RENDERER lantern
PARSER beam
REQUIRES v0.1
"""
    recipe = meaning(text, folder)
    assert (recipe.from_.path, recipe.from_.line) == (folder / "target", 2)
    assert recipe.draft is not None
    assert recipe.draft.path == folder / "assistant"
    assert [adapter.path for adapter in recipe.adapters] == [folder / "lora one", folder / "lora2"]
    assert recipe.parameters == Parameters({"temperature": 0.5, "stop": ["a", "b "]})
    assert recipe.template == "{% for m in messages %}{{ m.content }}{% endfor %}"
    assert (recipe.system, recipe.licenses) == ("Be brief.", ("MIT", "Apache-2.0"))
    assert recipe.messages == (("user", "Hi"), ("assistant", "Hello: you"))
    assert (recipe.renderer, recipe.parser, recipe.requires) == ("lantern", "beam", "0.1.0")


def test_what_is_not_said_is_none(folder: Path):
    assert Recipe(meaning("FROM ./target", folder).from_) == meaning("FROM ./target", folder)


def test_an_empty_system_is_said(folder: Path):
    assert meaning('FROM ./target\nSYSTEM ""', folder).system == ""


@pytest.mark.parametrize(
    "text", ["a", "library/model:7b", "host.example/team/model:tag", "model@sha256:abc", "x" * 5000]
)
def test_text_that_is_no_path_is_a_name(text: str, folder: Path):
    reference = meaning(f"FROM {text}", folder).from_
    assert (reference.text, reference.path) == (text, None)


@pytest.mark.parametrize("text", ["target", "./target", ".", "model.safetensors"])
def test_path_counts_from_the_folder_of_the_modelfile(text: str, folder: Path):
    assert meaning(f"FROM {text}", folder).from_.path == folder / text


def test_absolute_path_stays(folder: Path):
    assert meaning(f"FROM {folder}/target", Path("/")).from_.path == folder / "target"


def test_tilde_is_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(folder))
    assert meaning("FROM ~/target", Path("/")).from_.path == folder / "target"


def test_home_of_an_unknown_user_is_an_error(folder: Path):
    assert "1:1: FROM '~no-such-user-here/m': no such user" in refusal("FROM ~no-such-user-here/m", folder)


@pytest.mark.parametrize(
    "text",
    [
        "./nope",
        "../nope",
        "/nope",
        "nope.safetensors",
        "nope.GGUF",
        "nope.bin",
        "nope.pt",
        "nope.pth",
        "a\\b",
        "./a\0b",
        "./" + "x" * 5000,
    ],
)
def test_path_looking_text_that_is_not_there_is_an_error(text: str, folder: Path):
    message = refusal(f"# note\nFROM {text}", folder)
    assert message.startswith("Modelfile:2:1: FROM ")
    assert len(message) < 1200


def test_missing_path_says_what_to_do(folder: Path):
    assert refusal("FROM base\nDRAFT ./nope", folder).splitlines() == [
        f"Modelfile:2:1: DRAFT './nope': no such file or directory ({str(folder / 'nope')!r})",
        "A path counts from the Modelfile's folder and is never downloaded. "
        "A stored model goes by its name: DRAFT my-model",
    ]


@pytest.mark.parametrize("text", ["FROM ./base \\", "FROM base\nSYSTEM one \\\ntwo"])
def test_no_line_is_joined_to_the_next(text: str, folder: Path):
    """As a shell, or a Dockerfile, would."""
    assert "A \\ at the end of a line does not join it to the next one." in refusal(text, folder)


def test_broken_link_is_not_there(folder: Path):
    (folder / "link.gguf").symlink_to("gone.gguf")
    assert "no such file" in refusal("FROM link.gguf", folder)


def test_adapter_is_never_a_name(folder: Path):
    assert "ADAPTER 'my-lora': no such file or directory" in refusal("FROM a\nADAPTER my-lora", folder)


def test_an_empty_draft_is_said(folder: Path):
    said, unsaid = (meaning(f"FROM a\n{line}", folder) for line in ('DRAFT ""', ""))
    assert (said.draft, said.draftless) == (None, True)
    assert (unsaid.draft, unsaid.draftless) == (None, False)


@pytest.mark.parametrize("keyword", ["FROM", "DRAFT", "TEMPLATE", "SYSTEM", "RENDERER", "PARSER", "REQUIRES"])
def test_second_line_of_a_single_directive_is_an_error(keyword: str, folder: Path):
    message = refusal(
        f"FROM a\nREQUIRES 0.1.0\n{keyword} x\n\n{keyword} y".replace("REQUIRES 0.1.0", "#"), folder
    )
    first, second = (1, 3) if keyword == "FROM" else (3, 5)
    assert f"Modelfile:{second}:1: a second {keyword}; the first is on line {first}" in message
    assert ("projector for images" in message) == (keyword == "FROM")


def test_second_line_of_a_parameter_is_an_error(folder: Path):
    message = refusal("FROM a\nPARAMETER seed 1\nPARAMETER seed 1", folder)
    assert "Modelfile:3:1: seed is set a second time; line 2 sets it first" in message


@pytest.mark.parametrize("line", ["num_ctx 0", "mirostat 1", "Num_Ctx 7", "temperature "])
def test_bad_parameter_is_an_error_at_its_line(line: str, folder: Path):
    assert refusal(f"FROM a\nPARAMETER {line}", folder).startswith("Modelfile:2:1: ")


@pytest.mark.parametrize(
    "keyword", ["FROM", "ADAPTER", "TEMPLATE", "LICENSE", "RENDERER", "PARSER", "REQUIRES"]
)
def test_empty_argument_is_an_error(keyword: str, folder: Path):
    text = 'FROM ""' if keyword == "FROM" else f'FROM a\n{keyword} ""'
    assert f"{keyword} needs" in refusal(text, folder)


def test_a_licence_of_blanks_is_an_error(folder: Path):
    assert "LICENSE needs" in refusal('FROM a\nLICENSE """ \n"""', folder)


@pytest.mark.parametrize(
    ("text", "version"),
    [("1", "1.0.0"), ("v0.5", "0.5.0"), ("v1.2.3-rc.1+build.7", "1.2.3-rc.1"), ("10.20.30", "10.20.30")],
)
def test_version_is_normalised(text: str, version: str, folder: Path):
    assert meaning(f"FROM a\nREQUIRES {text}", folder).requires == version


@pytest.mark.parametrize(
    "text", ["latest", "V1.0.0", "01.0.0", "1.2.3.4", ">=1", "1.0-rc1", "1." + "9" * 1000]
)
def test_text_that_is_no_version_is_an_error(text: str, folder: Path):
    assert "Modelfile:2:1: " in refusal(f"FROM a\nREQUIRES {text}", folder)


GO = [
    "{{ .Prompt }}",
    "{{.Prompt}}",
    "{{ if .System }}<s>{{ .System }}{{ end }}",
    "{{- if and .System .Prompt }}x{{ end -}}",
    "{{- range .Messages }}{{ .Role }}{{ end }}",
    "{{ range $i, $m := .Messages }}x{{ end }}",
    "{{ $last := 1 }}",
    "{{/* a note */}}text",
    "{{ json .Messages }}",
    '{{ define "part" }}x{{ end }}',
    '{{ template "part" . }}',
    "{{ with .Tools }}x{{ end }}",
]


@pytest.mark.parametrize("template", GO)
def test_go_template_is_recognised(template: str):
    assert is_go(template)


@pytest.mark.parametrize(
    "template",
    [
        "",
        "plain text",
        "{{ messages[0].content }}",
        "{{ end }}{{ range(3) }}{{ template }}{{ json }}",
        "{{ messages\n   .strip() }}",
        "{{- 'a' if x else .5|string -}}",
        "{# not {{ .Prompt }} #}{{ x }}",
        "{% raw %}{{ .Prompt }}{% endraw %}",
        "{%- for m in messages %}{{ m.content }}{% endfor %}",
    ],
)
def test_jinja_is_not_taken_for_go(template: str):
    assert not is_go(template)


def test_real_templates_are_not_taken_for_go(shared_data: Path):
    templates = sorted((shared_data / "templates").glob("*.jinja"))
    assert templates
    assert not any(is_go(path.read_text()) for path in templates)


lines = st.tuples(
    st.sampled_from(
        [
            "DRAFT",
            "ADAPTER",
            "PARAMETER seed",
            "PARAMETER stop",
            "MESSAGE user",
            "TEMPLATE",
            "REQUIRES",
            "FROM",
        ]
    ),
    st.text(alphabet="./~\\\0 \t{}1a%", max_size=8),
).map(" ".join)


@given(st.lists(lines, max_size=4))
def test_any_modelfile_has_a_meaning_or_one_error(given_lines: list[str]):
    with contextlib.suppress(ModelfileError):
        meaning("\n".join(["FROM a", *given_lines]), Path("/nonexistent"))


@pytest.mark.parametrize("draft", ["./assistant", "./nowhere", "stored"])
def test_what_is_wrong_with_from_is_told_once(draft: str, folder: Path):
    said = refusal(f"FROM ./missing\nDRAFT {draft}", folder)
    assert said.count("FROM './missing'") == 1


@pytest.mark.parametrize(
    "line",
    [
        "PARAMETER temperature 0.2   # low",
        "DRAFT ./assistant # small",
        "ADAPTER ./law # ours",
        "QUANTIZE q4 # small",
        "REQUIRES 0.1.0 # at least",
    ],
)
def test_a_comment_behind_a_value_is_told(line: str, folder: Path):
    said = refusal(f"FROM ./target\n{line}", folder)
    assert line.split(maxsplit=1 + line.startswith("PARAMETER"))[-1] in said
    assert said.endswith("A comment stands on a line of its own; here it would be part of the value.")


def test_a_template_may_have_a_number_sign(folder: Path):
    with pytest.raises(ModelfileError) as caught:
        Modelfile.parse("FROM a\nTEMPLATE {{ 1 # 2").recipe(folder, check_template=_never)
    assert str(caught.value) == "Modelfile:2:1: never"


def _never(text: str) -> None:
    raise TemplateError("never")
