"""Translators: a request says what is read and what is written; tokens stand where models expect them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import modelkit
from modelkit.errors import ModelkitError, RequestError
from runtime.engine.notifier import Wake
from runtime.engine.request import Request
from runtime.engine.stream import Stream
from tests.support.checkpoints import write_checkpoint
from tests.support.parity import Reference

PAD, END, EN, FR, DE = 1, 2, 100, 101, 102
A = 5
"""What the letters of a text begin with."""


def write_tokenizer(folder: Path, languages: list[str], *, special: bool = True, **config: Any) -> None:
    """A unigram model over characters, and languages from the id 100 on."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -1.0)]
    pieces += [(chr(code), -2.0) for code in range(97, 123)]
    pieces += [(f"<{place}>", -9.0) for place in range(len(pieces), EN)]
    pieces += [(name, 0.0) for name in languages]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.add_tokens([AddedToken(name, special=special, normalized=False) for name in languages])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["$A", "</s>"], special_tokens=[("</s>", END)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    said = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(said), encoding="utf-8")


Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A model folder of a reference, with a vocabulary of languages."""

    def write(
        name: str, languages: list[str], class_: str, *, generation: dict[str, Any] | None = None, **more: Any
    ) -> Path:
        record = Reference(name).record
        config = {**record["config"], **more}
        folder = write_checkpoint(tmp_path / "model", config, record["tensors"])
        write_tokenizer(folder, languages, special=class_ != "MarianTokenizer", tokenizer_class=class_)
        if generation is not None:
            (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
        return folder

    return write


def begun(model: modelkit.Model, prompt: Any, **asked: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the encoder reads, and what the answer begins with."""
    seen: list[Any] = []
    submit = model._open.engine.submit  # pyright: ignore[reportPrivateUsage]

    def noted(request: Request, wake: Wake | None = None) -> Stream:
        seen.append(request)
        return submit(request, wake)

    model._open.engine.submit = noted  # pyright: ignore[reportPrivateUsage]
    model.generate(prompt, num_predict=2, temperature=0, **asked)
    model._open.engine.submit = submit  # pyright: ignore[reportPrivateUsage]
    return seen[0].source, seen[0].ids


NLLB = ["eng_Latn", "fra_Latn", "deu_Latn"]


def test_languages_frame_prompt_and_answer(make: Make) -> None:
    with modelkit.load(make("m2m_100", NLLB, "NllbTokenizer")) as model:
        text = model.encode("a", add_special=False)
        assert begun(model, "a") == ((EN, *text, END), (END,))
        assert any("which of 3 languages answers are in" in note for note in model.notes)
        asked = {"source_language": "fra_Latn", "target_language": "deu_Latn"}
        assert begun(model, "a", **asked) == ((FR, *text, END), (END, DE))
        assert begun(model, [EN, 7, END], **asked) == ((FR, 7, END), (END, DE))
        with pytest.raises(RequestError, match="the prompt's first token is not a language"):
            model.generate([7, END], source_language="fra_Latn")
        with pytest.raises(RequestError, match="none of the model's 3 languages") as refused:
            model.generate("a", target_language="deu")
        assert "deu_Latn" in str(refused.value.hint)


def test_marks_of_codes_are_left_out(make: Make) -> None:
    with modelkit.load(make("m2m_100", ["__en__", "__fr__", "__de__"], "M2M100Tokenizer")) as model:
        text = model.encode("a", add_special=False)
        assert begun(model, "a", target_language="de") == ((EN, *text, END), (END, DE))


def test_the_first_mbart_has_them_behind_texts_and_first_in_answers(make: Make) -> None:
    codes = ["en_XX", "fr_XX", "de_DE"]
    with modelkit.load(make("mbart", codes, "MBartTokenizer", decoder_start_token_id=FR)) as model:
        text = model.encode("a", add_special=False)
        assert begun(model, "a", source_language="de_DE") == ((*text, END, DE), (FR,))
        assert begun(model, "a", target_language="de_DE") == ((*text, END, EN), (DE,))


def test_marian_is_told_in_its_prompt(make: Make) -> None:
    with modelkit.load(make("marian", [">>eng<<", ">>fra<<", ">>deu<<"], "MarianTokenizer")) as model:
        text = model.encode("a")
        assert begun(model, "a", target_language="fra")[0] == (FR, *text)
        assert begun(model, [DE, *text], target_language="fra")[0] == (FR, *text)
        with pytest.raises(RequestError, match="do not say which language they are in"):
            model.generate("a", source_language="eng")


def test_a_package_has_languages_and_a_request_others(make: Make, tmp_path: Path) -> None:
    make("m2m_100", NLLB, "NllbTokenizer", generation={"forced_bos_token_id": EN, "bad_words_ids": [[PAD]]})
    (tmp_path / "Modelfile").write_text(
        "FROM ./model\nPARAMETER target_language fra_Latn\n", encoding="utf-8"
    )
    modelkit.create(tmp_path / "Modelfile", name="it", quantize="q8", home=tmp_path)
    with modelkit.load("it", home=tmp_path) as model:
        assert begun(model, "a")[1] == (END, FR)
        assert begun(model, "a", target_language="deu_Latn")[1] == (END, DE)
        assert PAD in model._open.suppressed  # pyright: ignore[reportPrivateUsage]
        assert not any("not applied" in note for note in model.notes)
    (tmp_path / "Modelfile").write_text("FROM ./model\nPARAMETER target_language fra\n", encoding="utf-8")
    with pytest.raises(ModelkitError, match=r"Modelfile:2.*target_language is fra"):
        modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)


def test_authors_say_how_answers_begin(make: Make) -> None:
    with modelkit.load(make("bart", [], "BartTokenizer", generation={"forced_bos_token_id": 0})) as model:
        assert begun(model, "a")[1] == (2, 0)
        with pytest.raises(RequestError, match="no tokens of languages"):
            model.generate("a", target_language="fra_Latn")
