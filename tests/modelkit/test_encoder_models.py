"""Models whose prompt an encoder reads, the whole way: folder, package, prompts in text, answers, scores."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelkit
from modelkit.errors import ModelkitError, RequestError
from tests.support.checkpoints import random_state, random_tensor, write_checkpoint
from tests.support.parity import Reference
from tests.support.peft_folders import write_peft

CONTEXT = 64
END = 1


def write_tokenizer(folder: Path) -> None:
    """Like T5's: a unigram model over characters, whose prompts end in </s>, and no chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -1.0)]
    pieces += [(chr(code), -2.0) for code in range(33, 127)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["$A", "</s>"], special_tokens=[("</s>", END)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    said = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(said), encoding="utf-8")


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """A model folder of a reference, with changes to its config and extra files."""

    def write(name: str = "t5", generation: dict[str, Any] | None = None, **changes: Any) -> Path:
        record = Reference(name).record
        config = {**record["config"], "eos_token_id": END, **changes}
        folder = write_checkpoint(tmp_path / "model", config, record["tensors"])
        write_tokenizer(folder)
        if generation is not None:
            (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
        return folder

    return write


@pytest.fixture
def model(make: Callable[..., Path], tmp_path: Path) -> Iterator[modelkit.Model]:
    make()
    (tmp_path / "Modelfile").write_text(
        f"FROM ./model\nPARAMETER temperature 0\nPARAMETER num_ctx {CONTEXT}\nPARAMETER context_shift off\n",
        encoding="utf-8",
    )
    modelkit.create(tmp_path / "Modelfile", name="it", quantize="q8", home=tmp_path)
    with modelkit.load("it", home=tmp_path) as loaded:
        yield loaded


def test_a_prompt_ends_as_its_tokenizer_ends_it(model: modelkit.Model) -> None:
    assert model.encode("go on")[-1] == END
    said = model.generate("translate this", num_predict=6)
    assert said.usage.prompt_tokens == len(model.encode("translate this"))
    assert said.ids == model.generate(model.encode("translate this"), num_predict=6).ids


def test_answers_depend_on_prompt_and_seed_alone(model: modelkit.Model) -> None:
    asked = [{"seed": seed, "temperature": 1.0, "num_predict": 12} for seed in (1, 2)]
    alone = [model.generate("a prompt", **each).ids for each in asked]
    streams = [model.generate("a prompt", stream=True, **each) for each in asked]
    assert [stream.whole().ids for stream in streams] == alone
    assert alone[0] != alone[1]
    assert model.generate("another", **asked[0]).ids != alone[0]


def test_an_equal_prompt_is_read_once(model: modelkit.Model) -> None:
    first, again = (model.generate("what was asked before", num_predict=4) for _ in range(2))
    assert (first.usage.cached_tokens, again.usage.cached_tokens) == (0, first.usage.prompt_tokens)
    (kept,) = model.prefixes()
    assert list(kept.ids) == model.encode("what was asked before")


def test_grammars_and_log_probabilities(model: modelkit.Model) -> None:
    said = model.generate("which?", regex="(yes|no)!", top_logprobs=2)
    assert said.text in ("yes!", "no!")
    assert len(said.logprobs) == len(said.ids)


def test_scores_are_those_of_the_answer(model: modelkit.Model) -> None:
    assert model.start_id == 0
    prompt = model.encode("score this")
    said = model.generate(prompt, num_predict=5)
    logits = model.logits([model.start_id, *said.ids[:-1]], source=prompt)
    assert logits.argmax(-1).tolist() == list(said.ids)
    assert np.array_equal(logits, model.logits([model.start_id, *said.ids[:-1]], source=prompt))


def test_scores_need_a_source(model: modelkit.Model) -> None:
    with pytest.raises(RequestError, match="source has 0 ids"):
        model.logits([0, 5])
    with pytest.raises(RequestError, match=f"source has {CONTEXT + 1} ids"):
        model.logits([0, 5], source=[5] * (CONTEXT + 1))


def test_prompt_and_answer_each_have_the_context(model: modelkit.Model) -> None:
    said = model.generate([5] * CONTEXT)
    assert (said.usage.prompt_tokens, len(said.ids), said.reason) == (CONTEXT, CONTEXT - 1, "length")
    with pytest.raises(RequestError, match=f"prompt has {CONTEXT + 1} tokens and the context is {CONTEXT}"):
        model.generate([5] * (CONTEXT + 1))


def test_memory_counts_prompt_and_answer(model: modelkit.Model) -> None:
    record = Reference("t5").record["config"]
    token = 2 * record["num_heads"] * record["d_kv"] * 4 * record["num_decoder_layers"]
    assert model.memory.cache_bytes == 2 * CONTEXT * token


def test_the_authors_word_on_the_start_goes_first(make: Callable[..., Path]) -> None:
    with modelkit.load(make(generation={"decoder_start_token_id": 7})) as loaded:
        assert loaded.start_id == 7
    with modelkit.load(make(generation={"decoder_start_token_id": 1000})) as loaded:
        assert loaded.start_id == 0
        assert any("decoder_start_token_id is 1000" in note for note in loaded.notes)


def test_no_draft_guesses_for_it(make: Callable[..., Path], tmp_path: Path) -> None:
    make().rename(tmp_path / "draft")
    make()
    (tmp_path / "Modelfile").write_text("FROM ./model\nDRAFT ./draft\n", encoding="utf-8")
    with pytest.raises(ModelkitError, match="reads prompts with an encoder"):
        modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)


@pytest.mark.parametrize(("name", "above"), [("t5", ""), ("bart", "model.")])
def test_copies_of_the_embedding_are_left_out(
    name: str, above: str, make: Callable[..., Path], tmp_path: Path
) -> None:
    from safetensors.numpy import save_file

    folder = make(name)
    state = random_state(Reference(name).record["tensors"])
    names = f"{above}encoder.embed_tokens.weight", f"{above}decoder.embed_tokens.weight", "lm_head.weight"
    save_file({**state, **dict.fromkeys(names, state[f"{above}shared.weight"])}, folder / "model.safetensors")
    (tmp_path / "Modelfile").write_text("FROM ./model\n", encoding="utf-8")
    created = modelkit.create(tmp_path / "Modelfile", name="it", quantize="q8", home=tmp_path)
    assert any("shared.weight says the same" in note for note in created.notes)
    with modelkit.load("it", home=tmp_path) as loaded:
        assert len(loaded.generate("go on", num_predict=3).ids) <= 3


def test_a_head_that_differs_from_a_tied_embedding_is_used(make: Callable[..., Path], tmp_path: Path) -> None:
    """As transformers 5 saves Flan-T5: the config ties, and says apart that nothing is scaled."""
    make("t5_v1_1", tie_word_embeddings=True)
    (tmp_path / "Modelfile").write_text("FROM ./model\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)
    reference = Reference("t5_v1_1")
    with modelkit.load("it", home=tmp_path) as loaded:
        got = loaded.logits(reference.answers["ids"].tolist(), source=reference.source.tolist())
        assert reference.error(got) < 1e-3


@pytest.mark.parametrize("text", [None, "a text that both encoders read " * 12])
def test_two_are_compared_on_answers(
    model: modelkit.Model, make: Callable[..., Path], tmp_path: Path, text: str | None
) -> None:
    far = modelkit.compare(tmp_path / "model", "it", text=text, home=tmp_path)
    assert 0 < far.kl < 0.05
    assert far.same_top > 0.9
    assert modelkit.compare("it", "it", text=text, home=tmp_path).kl == 0


def test_answers_are_compared_with_adapters(make: Callable[..., Path], tmp_path: Path) -> None:
    """A pair in the encoder and one in the decoder: as what fusing them makes."""
    make()
    pairs: dict[str, np.ndarray] = {}
    for module in ("encoder.block.0.layer.0.SelfAttention.v", "decoder.block.0.layer.1.EncDecAttention.q"):
        rows, columns = Reference("t5").record["tensors"][f"{module}.weight"]
        pairs[f"base_model.model.{module}.lora_A.weight"] = random_tensor(f"{module}.a", (3, columns))
        pairs[f"base_model.model.{module}.lora_B.weight"] = random_tensor(f"{module}.b", (rows, 3))
    write_peft(tmp_path / "lora", pairs)
    (tmp_path / "Modelfile").write_text("FROM ./model\nADAPTER ./lora\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)
    modelkit.create(tmp_path / "Modelfile", name="fused", fuse_adapters=True, home=tmp_path)
    far = modelkit.compare("it", "it+lora", home=tmp_path).kl
    assert far == pytest.approx(modelkit.compare(tmp_path / "model", "fused", home=tmp_path).kl, rel=1e-3)
    assert modelkit.compare("fused", "it+lora", home=tmp_path).kl < 1e-6 < 1e-4 < far


def test_two_that_begin_differently_are_not_compared(make: Callable[..., Path], tmp_path: Path) -> None:
    make().rename(tmp_path / "a")
    make(decoder_start_token_id=7)
    with pytest.raises(ModelkitError, match="begins answers with id 0, the second begins answers with id 7"):
        modelkit.compare(tmp_path / "a", tmp_path / "model", home=tmp_path)
