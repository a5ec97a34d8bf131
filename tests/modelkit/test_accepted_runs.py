"""Whatever `create` accepts can be run: small files changed in hostile ways are refused, or do no harm."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import modelkit
from modelkit.chat import time_limit
from modelkit.chat.guarded import environment
from modelkit.chat.guarded.budget import Budget
from modelkit.errors import ModelfileError, ModelkitError, RequestError, TemplateError
from tests.support.tiny import TEMPLATE, write_model

USER = [{"role": "user", "content": "Hi"}]
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 319, 320, 10**9, 2**63, 0.5, 1e300, float("nan"), float("inf")),
    *("", "2", "silu", [], [-1], [1, 2], [[1]], ["a"], [320], {}, {"a": 1}, {"content": 7}, "x" * 5000),
)
FIELDS: dict[str, tuple[str, ...]] = {
    "config.json": (
        *("eos_token_id", "bos_token_id", "pad_token_id", "vocab_size", "max_position_embeddings"),
        *("rms_norm_eps", "head_dim", "hidden_act", "tie_word_embeddings", "torch_dtype", "dtype"),
        *("quantization", "quantization_config", "text_config", "layer_types", "sliding_window"),
        *("architectures", "model_type", "attention_bias", "transformers_version"),
    ),
    "generation_config.json": (
        *("eos_token_id", "temperature", "top_k", "top_p", "repetition_penalty", "min_p", "typical_p"),
        *("do_sample", "suppress_tokens", "begin_suppress_tokens", "max_new_tokens"),
    ),
    "tokenizer_config.json": (
        *("eos_token", "bos_token", "unk_token", "pad_token", "additional_special_tokens", "chat_template"),
        *(
            "add_bos_token",
            "add_eos_token",
            "added_tokens_decoder",
            "extra_special_tokens",
            "model_max_length",
        ),
    ),
}
TEMPLATES = {
    "does not compile": "{% for %}",
    "never ends": "{% for m in messages %}",
    "undefined filter": "{{ messages | novel }}",
    "undefined test": "{{ messages is novel }}",
    "not utf-8": "\udcff",
    "empty": "",
    "blank": " \n ",
    "no messages": "Hello",
    "raises": "{{ raise_exception('no') }}",
    "raises for users": "{% for m in messages %}{% if m.role == 'user' %}{{ 1 / 0 }}{% endif %}{% endfor %}",
    "only for tools": "{% if tools %}{{ messages[0].content }}{% endif %}",
    "go": "{{ .System }}{{ range .Messages }}{{ .Content }}{{ end }}",
    "loops for ever": "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
    "includes": "{% include 'x' %}",
    "subscripts a number": "{% if false %}{{ 5[0] }}{% endif %}{{ messages[0].content }}",
    "prints a method": "{{ '%s'.format }}{{ messages[0].content }}",
    "a million tokens": "{{ 1 }}" * 200_000,
    "asks for a variable": "{{ messages[0].content }}{{ novel.thing }}",
    "only the last": "{{ messages[-1].content }}",
}


def outcomes(folder: Path, home: Path) -> Iterator[str]:
    """What became of it: refused by create, or run."""
    try:
        made = modelkit.create(modelkit.Modelfile.parse(f"FROM {folder}"), name="it", home=home)
    except ModelkitError:
        yield "refused"
        return
    with modelkit.load(str(made.name), home=home) as model:
        assert len(model.generate("A", raw=True, num_predict=1, temperature=0).ids) <= 1
        assert model.logits([1, 2]).shape[0] == 2
        try:
            model.chat(USER, num_predict=1)
        except (TemplateError, RequestError):
            assert any("template" in note for note in made.notes), made.notes
            yield "runs raw"
        else:
            yield "chats"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(
        tmp_path_factory.mktemp("accepted") / "model", template=TEMPLATE, generation={"eos_token_id": 256}
    )


def changed(good: Path, tmp_path: Path, change: Callable[[Path], object]) -> Path:
    folder = tmp_path / "model"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(good, folder)
    change(folder)
    return folder


def setting(file: str, field: str, value: Any) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        path = folder / file
        path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))

    return edit


EVERY = [(file, field) for file, all_ in FIELDS.items() for field in all_]
SOME = 3  # of the values are tried for one field, others for the next


@pytest.mark.parametrize(("file", "field"), EVERY)
def test_a_field_of_some_values(file: str, field: str, good: Path, tmp_path: Path) -> None:
    first = EVERY.index((file, field))
    try_values(file, field, [VALUES[(first + 9 * n) % len(VALUES)] for n in range(SOME)], good, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("file", "field"), EVERY)
def test_a_field_of_any_value(file: str, field: str, good: Path, tmp_path: Path) -> None:
    try_values(file, field, VALUES, good, tmp_path)


def try_values(file: str, field: str, values: Sequence[Any], good: Path, tmp_path: Path) -> None:
    for value in values:
        for _ in outcomes(changed(good, tmp_path, setting(file, field, value)), tmp_path):
            pass


# Where it stands matters for finding it, not for what it is.
PLACED = [(name, "chat_template.jinja") for name in TEMPLATES]
PLACED += [(name, "tokenizer_config.json") for name in ("does not compile", "not utf-8", "empty", "raises")]


@pytest.mark.parametrize(("name", "where"), PLACED)
def test_a_template(
    name: str, where: str, good: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    text = TEMPLATES[name]
    if name == "loops for ever":  # each rendering of it takes as long as one may
        monkeypatch.setattr(environment, "Budget", lambda seconds: Budget(seconds / 10))
        monkeypatch.setattr(time_limit, "MOST_S", 0.3)

    def edit(folder: Path) -> None:
        (folder / "chat_template.jinja").unlink()
        if where == "tokenizer_config.json":
            setting(where, "chat_template", text)(folder)
        else:
            (folder / where).write_bytes(text.encode(errors="surrogateescape"))

    for outcome in outcomes(changed(good, tmp_path, edit), tmp_path):
        assert outcome != "refused" or "utf-8" in name
    printed = capfd.readouterr()
    assert printed.err + printed.out == ""


@pytest.mark.parametrize("value", [[], {}, [{"name": "tool_use", "template": "x"}], [1], {"default": 5}, 7])
def test_templates_that_are_no_text(value: Any, good: Path, tmp_path: Path) -> None:
    def edit(folder: Path) -> None:
        (folder / "chat_template.jinja").unlink()
        setting("tokenizer_config.json", "chat_template", value)(folder)

    assert list(outcomes(changed(good, tmp_path, edit), tmp_path)) == ["runs raw"]


def test_a_broken_template_directive_is_refused(good: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelfileError, match=r"Modelfile:2:1: chat template, line 1"):
        modelkit.create(
            modelkit.Modelfile.parse(f"FROM {good}\nTEMPLATE {{% for %}}"), name="it", home=tmp_path
        )


def test_a_broken_template_is_said_when_it_matters(good: Path, tmp_path: Path) -> None:
    folder = changed(good, tmp_path, lambda at: (at / "chat_template.jinja").write_text("{% for %}"))
    with modelkit.load(folder) as model:
        assert not model.has_template
        assert any("takes no conversations" in note for note in model.notes)
        for ask in (lambda: model.generate("Hi"), lambda: model.chat(USER), lambda: model.prompt(USER)):
            with pytest.raises(TemplateError, match=r"template cannot be used.*line 1") as caught:
                ask()
            assert "--raw" in (caught.value.hint or "")


@pytest.mark.parametrize("line", ["PARAMETER kv_format q8", "PARAMETER repeat_penalty 0.001"])
def test_a_parameter_that_cannot_run_is_refused(line: str, tmp_path: Path) -> None:
    """Heads of 16 do not divide into groups of 32."""
    folder = write_model(tmp_path / "narrow", head_dim=16)
    with pytest.raises(ModelkitError, match=line.split()[1]):
        modelkit.create(modelkit.Modelfile.parse(f"FROM {folder}\n{line}"), name="it", home=tmp_path)
