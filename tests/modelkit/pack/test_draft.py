import json
from pathlib import Path
from typing import Any

import pytest

import modelkit
from modelkit.errors import PlanError, TokenizerError
from modelkit.pack.draft import about_draft, check_draft, check_rows
from modelkit.tokenizer import Tokenizer, load_tokenizer
from tests.modelkit.tokenizer.small import added
from tests.support.tiny import write_model


def tokenizer(write_tokenizer: object, folder: Path, words: int) -> tuple[Tokenizer, dict[str, Path]]:
    assert callable(write_tokenizer)
    folder.mkdir()
    write_tokenizer(folder, words)
    files = {path.name: path for path in folder.iterdir()}
    return load_tokenizer(files), files


@pytest.fixture
def target(tmp_path: Path, write_tokenizer: object) -> Tokenizer:
    return tokenizer(write_tokenizer, tmp_path / "target", 32)[0]


def test_the_same_tokenizer_fits(tmp_path: Path, write_tokenizer: object, target: Tokenizer) -> None:
    _, files = tokenizer(write_tokenizer, tmp_path / "draft", 32)
    assert check_draft({"vocab_size": 32}, files, target) == ()


def test_another_tokenizer_is_refused(tmp_path: Path, write_tokenizer: object, target: Tokenizer) -> None:
    _, files = tokenizer(write_tokenizer, tmp_path / "draft", 33)
    with pytest.raises(PlanError, match="the draft's tokenizer is not the target's"):
        check_draft({"vocab_size": 33}, files, target)


def test_a_draft_without_a_tokenizer_takes_the_targets(target: Tokenizer) -> None:
    assert check_draft({"vocab_size": 64}, {}, target) == ()


def test_a_padded_vocabulary_fits(target: Tokenizer) -> None:
    assert check_draft({"text_config": {"vocab_size": 1024}}, {}, target) == ()


def test_a_vocabulary_too_small_for_the_tokens_is_refused(target: Tokenizer) -> None:
    with pytest.raises(PlanError, match="the draft embeds 20 ids"):
        check_draft({"vocab_size": 20}, {}, target)


def with_added(write_tokenizer: object, folder: Path, *names: str) -> tuple[Tokenizer, dict[str, Path]]:
    """The same words, and behind them added tokens."""
    _, files = tokenizer(write_tokenizer, folder, 32)
    said = json.loads(files["tokenizer.json"].read_bytes())
    said["added_tokens"] += [added(name, 32 + at, special=False) for at, name in enumerate(names)]
    files["tokenizer.json"].write_text(json.dumps(said))
    return load_tokenizer(files), files


@pytest.mark.parametrize("rows", [64, 32])
def test_added_tokens_may_differ(
    rows: int, tmp_path: Path, write_tokenizer: object, target: Tokenizer
) -> None:
    """QwQ has marks of thinking that Qwen 2.5, whose small models draft for it, has not."""
    thinks, of_target = with_added(write_tokenizer, tmp_path / "thinks", "<think>", "</think>")
    (note,) = check_draft({"vocab_size": rows}, {} if rows == 32 else of_draft(tmp_path), thinks)
    assert note.startswith("2 added tokens are not the same in draft and target (id 32 is '<think>' in")
    (note,) = check_draft({"vocab_size": 64}, of_target, target)
    assert note.startswith("2 added tokens are not the same in draft and target (id 32 is nothing in")


def of_draft(tmp_path: Path) -> dict[str, Path]:
    """The files of the fixture `target`."""
    return {path.name: path for path in (tmp_path / "target").iterdir()}


def test_many_added_tokens_are_another_vocabulary(
    tmp_path: Path, write_tokenizer: object, target: Tokenizer
) -> None:
    _, files = with_added(write_tokenizer, tmp_path / "draft", *(f"<{n}>" for n in range(129)))
    with pytest.raises(PlanError, match="one vocabulary ends at id 31, the other at id 160"):
        check_draft({"vocab_size": 200}, files, target)


def test_rows_that_only_the_table_has_count(target: Tokenizer) -> None:
    """As those of Molmo 2."""
    config = {"vocab_size": 20, "additional_vocab_size": target.vocab_size - 20}
    assert check_rows(config, target, "the model") == ()


def test_a_special_token_without_a_row_is_noted(target: Tokenizer) -> None:
    (note,) = check_rows({"vocab_size": 31}, target, "the model")
    assert "no embedding for 1 special tokens (<end>)" in note


def test_a_tokenizer_that_cannot_be_read_is_said_to_be_the_drafts(tmp_path: Path, target: Tokenizer) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match=r"the draft: tokenizer\.json is refused"):
        check_draft({"vocab_size": 32}, {"tokenizer.json": tmp_path / "tokenizer.json"}, target)


@pytest.mark.parametrize(
    ("advice", "said"),
    [
        ("-q bf16 unpacks it.", "--quantize-draft bf16 unpacks it."),
        ("Say -q q8, -q f16.", "Say --quantize-draft q8, --quantize-draft f16."),
        ("FROM takes a folder.", "DRAFT takes a folder."),
        ("Give --no-q x, or q-q y.", "Give --no-q x, or q-q y."),
    ],
)
def test_advice_about_a_draft_names_its_option(advice: str, said: str) -> None:
    assert about_draft(advice) == said


@pytest.mark.parametrize("change", [{"architectures": ["FooForCausalLM"]}, {"num_hidden_layers": 3}])
def test_what_is_wrong_with_a_draft_is_said_at_its_line(change: dict[str, Any], tmp_path: Path) -> None:
    write_model(tmp_path / "target")
    folder = write_model(tmp_path / "draft", num_hidden_layers=1)
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    text = modelkit.Modelfile.parse(f"FROM {tmp_path / 'target'}\n\nDRAFT {folder}")
    with pytest.raises(PlanError, match=r"^Modelfile:3:1: the (draft|weights of)"):
        modelkit.create(text, name="it", home=tmp_path)


def test_a_packed_draft_is_refused_with_the_option_for_drafts(tmp_path: Path) -> None:
    for name, layers in (("target", 2), ("draft", 1)):
        write_model(tmp_path / name, num_hidden_layers=layers)
    text = f"FROM {tmp_path / 'target'}\nDRAFT {tmp_path / 'draft'}"
    modelkit.create(modelkit.Modelfile.parse(text), name="pair", home=tmp_path, quantize_draft="q4")
    with pytest.raises(PlanError) as caught:
        modelkit.create(modelkit.Modelfile.parse("FROM pair"), name="it", home=tmp_path, quantize_draft="q8")
    assert "--quantize-draft bf16 (f16, f32) unpacks it" in (caught.value.hint or "")


@pytest.mark.parametrize(("quantized", "noted"), [(None, False), ("q4", True)])
def test_a_draft_that_is_no_smaller_than_its_target_is_noted(
    quantized: str | None, noted: bool, tmp_path: Path
) -> None:
    for name, layers in (("target", 2), ("draft", 1)):
        write_model(tmp_path / name, num_hidden_layers=layers)
    text = modelkit.Modelfile.parse(f"FROM {tmp_path / 'target'}\nDRAFT {tmp_path / 'draft'}")
    made = modelkit.create(text, name="pair", home=tmp_path, quantize=quantized)
    assert any("hardly saves time" in note for note in made.notes) is noted


@pytest.mark.parametrize(
    ("own", "lines", "noted"),
    [(16, (), True), (256, (), False), (16, ("PARAMETER num_ctx 16",), False)],
)
def test_a_draft_that_reads_less_than_its_target_is_noted(
    own: int, lines: tuple[str, ...], noted: bool, tmp_path: Path
) -> None:
    write_model(tmp_path / "target")
    write_model(tmp_path / "draft", num_hidden_layers=1, max_position_embeddings=own)
    (tmp_path / "Modelfile").write_text("\n".join(["FROM ./target", "DRAFT ./draft", *lines]))
    made = modelkit.create(tmp_path / "Modelfile", name="pair", home=tmp_path / "home")
    note = "the draft reads 16 tokens and the model 256; longer texts go undrafted"
    assert (note in made.notes) is noted
