"""Adapters of a package as requests choose them, from Python."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import modelkit
from modelkit.cli.main import cli
from modelkit.errors import RequestError
from modelkit.requests.attached import read_texts, texts_of
from modelkit.store.store import Store
from tests.support.adapter_references import AdapterReference
from tests.support.checkpoints import random_tensor, write_checkpoint
from tests.support.peft_folders import write_peft
from tests.support.tiny import write_tokenizer

NAMES = ("llama_lora", "llama_dora")
IDS = list(range(20, 50))
WARM: dict[str, Any] = {"temperature": 0.9, "seed": 5, "num_predict": 12}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("home")
    for name in NAMES:
        reference = AdapterReference(name)
        reference.write(root / name)
        config = {key: value for key, value in reference.base["config"].items() if key != "eos_token_id"}
        for seed, folder in enumerate((root / "model", root / "draft")):
            write_tokenizer(write_checkpoint(folder, config, reference.base["tensors"], seed), tokens=128)
    lines = ["FROM ./model", *(f"ADAPTER ./{name}" for name in NAMES)]
    (root / "Modelfile").write_text("\n".join([*lines, "DRAFT ./draft"]) + "\n", encoding="utf-8")
    modelkit.create(root / "Modelfile", name="it", home=root)
    modelkit.create(root / "Modelfile", name="packed", quantize="q8", home=root)
    return root


@pytest.fixture(scope="module")
def model(home: Path) -> Iterator[modelkit.Model]:
    with modelkit.load("it", home=home, cache_memory=1 << 24) as loaded:
        yield loaded


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_those_of_peft(name: str, model: modelkit.Model) -> None:
    reference = AdapterReference(name)
    got = model.logits(reference.ids.tolist(), adapters=[name])[:, reference.answers["columns"]]
    assert np.abs(got - reference.answers["logits"]).max() < 2e-4 * reference.answers["std"]


def test_vectors_are_those_of_the_same_weights(home: Path, model: modelkit.Model) -> None:
    """Of an adapter fused into the weights; by default all have a part, side by side as alone."""
    (home / "One").write_text(f"FROM ./model\nADAPTER ./{NAMES[0]}\n", encoding="utf-8")
    modelkit.create(home / "One", name="one", fuse_adapters=True, home=home)
    texts = [IDS, IDS[:9], IDS[4:20]]
    with modelkit.load("one", home=home) as fused:
        wanted = fused.embed(texts).vectors
    assert np.abs(model.embed(texts, adapters=[NAMES[0]]).vectors - wanted).max() < 1e-4
    usual = model.embed(texts).vectors
    np.testing.assert_array_equal(usual, model.embed(texts, adapters=NAMES).vectors)
    assert np.abs(usual - wanted).max() > 1e-3
    assert np.abs(usual[1] - model.embed([texts[1]]).vectors[0]).max() < 2e-6
    with pytest.raises(RequestError, match="no adapter 'law'"):
        model.embed(texts, adapters=["law"])


def test_vectors_from_the_command_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELKIT_HOME", str(home))
    ways = [], ["--no-adapters"], ["--adapter", f"{NAMES[0]}=0.5"]
    said = [CliRunner().invoke(cli, ["embed", "it", "((", *way]).stdout for way in ways]
    assert len({*said}) == 3
    assert all(one.startswith("[") for one in said)


def test_all_answer_unless_a_request_says_otherwise(model: modelkit.Model) -> None:
    assert model.adapters == NAMES
    usual = model.logits(IDS)
    np.testing.assert_array_equal(usual, model.logits(IDS, adapters=NAMES))
    np.testing.assert_array_equal(usual, model.logits(IDS, adapters=dict.fromkeys(NAMES, 1)))
    none = model.logits(IDS, adapters=[])
    np.testing.assert_array_equal(none, model.logits(IDS, adapters={NAMES[0]: 0.0}))
    some = [none, usual, *(model.logits(IDS, adapters={NAMES[0]: scale}) for scale in (1.0, 0.5, -1.0))]
    assert all(np.abs(a - b).max() > 1e-2 for i, a in enumerate(some) for b in some[:i])


def test_texts_are_the_same_alone_in_company_and_with_prefixes(model: modelkit.Model) -> None:
    chosen: list[Any] = [None, [], [NAMES[0]], {NAMES[1]: 0.7}, {NAMES[1]: 0.5, NAMES[0]: 2.0}]

    def ask(adapters: Any) -> tuple[int, ...]:
        return model.generate(IDS, adapters=adapters, top_logprobs=1, **WARM).ids

    alone = [ask(adapters) for adapters in chosen]
    with ThreadPoolExecutor(len(chosen)) as pool:
        assert list(pool.map(ask, chosen)) == alone
    assert [model.generate(IDS, adapters=its, draft_num_predict=0, **WARM).ids for its in chosen] == alone
    assert len(set(alone)) == len(chosen)
    spaces = {prefix.space for prefix in model.prefixes()}
    lora, dora = NAMES
    assert {"", f"{lora}+{dora}", lora, f"{dora}=0.7", f"{dora}=0.5+{lora}=2"} <= spaces


def test_grammars_hold(model: modelkit.Model) -> None:
    for adapters in ([NAMES[0]], []):
        answer = model.generate("x", raw=True, regex="[0-9]{3}[ab]{2}", adapters=adapters, num_predict=20)
        assert answer.complete
        assert answer.text[:3].isdigit()


def test_a_packed_base_takes_them_too(home: Path, model: modelkit.Model) -> None:
    with modelkit.load("packed", home=home) as packed:
        for adapters in ([], [NAMES[0]], [NAMES[1]]):
            wanted, got = model.logits(IDS, adapters=adapters), packed.logits(IDS, adapters=adapters)
            assert np.abs(got - wanted).mean() < 0.1 * wanted.std()


@pytest.mark.parametrize(
    ("adapters", "said"),
    [
        (["law"], "^adapters: the model has no adapter 'law'"),
        ("llama_lora", "a list of names"),
        ({"llama_lora": float("nan")}, "a number from -1,000,000 to 1,000,000"),
        ({"llama_lora": 1e9}, "a number from -1,000,000 to 1,000,000"),
        ({"llama_lora": True}, "a number from -1,000,000 to 1,000,000"),
        ({"llama_lora": "1"}, "a number from -1,000,000 to 1,000,000"),
        ({"llama_lora": 10**400}, "a number from -1,000,000 to 1,000,000"),
        (["llama_lora", "llama_lora"], "names llama_lora twice"),
        ([3], "^adapters: a name .*expected a text"),
        (7, "a list of names"),
    ],
)
def test_what_is_no_choice_is_refused(adapters: Any, said: str, model: modelkit.Model) -> None:
    with pytest.raises(RequestError, match=said) as refused:
        model.generate("x", adapters=adapters)
    if "no adapter" in said:
        assert refused.value.hint == "It has llama_lora, llama_dora."


def test_texts_of_people() -> None:
    chosen = read_texts(["b", "a=0.5"], ["a", "b"])
    assert chosen == (("b", 1.0), ("a", 0.5))
    assert texts_of(chosen) == "b a=0.5"
    for text in ("c", "a=", "a=x", "a=inf", "=1"):
        with pytest.raises(RequestError):
            read_texts([text], ["a", "b"])
    with pytest.raises(RequestError, match="twice"):
        read_texts(["a", "a=2"], ["a"])


def test_memory_is_foreseen(home: Path, model: modelkit.Model) -> None:
    with modelkit.load("it", home=home) as loaded:
        assert loaded.memory.adapter_bytes > 0
        loaded.logits(IDS)
        held = loaded._open.engine.adapters.nbytes  # pyright: ignore[reportPrivateUsage]
    assert loaded.memory.adapter_bytes == pytest.approx(held, rel=0.3)


def test_a_model_without_any_says_so_and_answers_as_one_with_none_chosen(
    home: Path, model: modelkit.Model
) -> None:
    with modelkit.load(home / "model") as plain:
        assert plain.adapters == ()
        np.testing.assert_array_equal(plain.logits(IDS), model.logits(IDS, adapters=[]))
        with pytest.raises(RequestError, match="no adapter") as refused:
            plain.generate("x", adapters=["a"])
        assert "ADAPTER" in str(refused.value.hint)


def test_pages_on_disk_are_shared_with_packages_of_the_same_weights(tmp_path: Path, home: Path) -> None:
    base = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {
        f"{base}.lora_A.weight": random_tensor("a", (3, 64)),
        f"{base}.lora_B.weight": random_tensor("b", (64, 3)),
    }
    write_peft(tmp_path / "one", tensors)
    write_peft(tmp_path / "other", tensors)
    for name in ("one", "other"):
        (tmp_path / "Modelfile").write_text(f"FROM {home / 'model'}\nADAPTER ./{name}\n", encoding="utf-8")
        modelkit.create(tmp_path / "Modelfile", name=name, home=tmp_path)
    settings: dict[str, Any] = {"home": tmp_path, "cache_disk": 1 << 26, "cache_memory": 1 << 24}
    with modelkit.load("one", **settings) as model:
        first = [model.generate(IDS, adapters=its, **WARM) for its in (None, [])]
    with modelkit.load("other", **settings) as model:
        again = [model.generate(IDS, adapters=its, **WARM) for its in (None, [], {"other": 0.5})]
    assert [answer.ids for answer in again[:2]] == [answer.ids for answer in first]
    assert [answer.usage.cached_tokens > 0 for answer in again] == [True, True, False]


def test_a_package_that_is_removed_meanwhile_still_answers(tmp_path: Path, home: Path) -> None:
    lines = f"FROM {home / 'model'}\nADAPTER {home / NAMES[0]}\n"
    (tmp_path / "Modelfile").write_text(lines, encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)
    with modelkit.load("it", home=tmp_path) as model:
        wanted = model.logits(IDS)
    with modelkit.load("it", home=tmp_path) as model:
        file = Store(tmp_path).resolve("it").files[f"adapters/{NAMES[0]}/adapter.safetensors"]
        modelkit.remove("it", home=tmp_path)
        assert not file.exists()
        np.testing.assert_array_equal(model.logits(IDS), wanted)
