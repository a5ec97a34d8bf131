"""Two models that are compared, with adapters that are named behind one or both."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import modelkit
from modelkit.cli.main import cli
from modelkit.comparing import predictions, texts
from modelkit.comparing.models import split_adapters
from modelkit.errors import ModelkitError, ModelNotFound, RequestError
from runtime.cpu.threads import Threads, thread_count
from runtime.quality import reading
from runtime.quality.divergence import Divergence
from tests.support.adapter_references import AdapterReference

ONE, TWO = "llama_lora", "llama_dora"
TEXT = "It was a bright cold day in April, and the clocks were striking thirteen. " * 8
SAME = Divergence(0.0, 0.0, 1.0, 1.0, 2.0, 24)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(texts, "TEXTS", 2)
    monkeypatch.setattr(texts, "TOKENS", 24)
    monkeypatch.setattr(predictions, "_MOST_TIMED", 24)


def test_a_text_of_unknown_size_is_read_no_further_than_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices, pipes and what lies under /proc have none; `--text /dev/zero` took all memory."""
    endless = Path("/proc/self/status")
    if not endless.exists():
        pytest.skip("this system has no /proc")
    monkeypatch.setattr(predictions, "_MOST_TEXT_BYTES", 100)
    with pytest.raises(ModelkitError, match="status cannot be read as a text: it is larger than 100 bytes"):
        predictions.read_text(endless)


def test_a_file_that_is_no_text_is_told_with_its_byte(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(
        ModelkitError, match=r"latin.txt cannot be read as a text: byte 3 \(0xe9\) is not UTF-8"
    ):
        predictions.read_text(tmp_path / "latin.txt")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("home")
    AdapterReference(ONE).write_base(root / "model")
    for name in (ONE, TWO):
        AdapterReference(name).write(root / name)
    make(root, "it", ONE, TWO)
    make(root, "fused", ONE, fuse_adapters=True)
    return root


def make(root: Path, name: str, *adapters: str, **options: Any) -> None:
    lines = ["FROM ./model", *(f"ADAPTER ./{one}" for one in adapters)]
    (root / "Modelfile").write_text("\n".join(lines) + "\n", encoding="utf-8")
    modelkit.create(root / "Modelfile", name=name, home=root, **options)


def compare(home: Path, a: object, b: object, **options: Any) -> modelkit.Comparison:
    places: list[Any] = [home / "model" if one == "model" else one for one in (a, b)]
    return modelkit.compare(places[0], places[1], home=home, **options)


def test_it_is_the_same_as_what_fusing_it_makes(home: Path) -> None:
    fused, beside = (compare(home, "model", name, text=TEXT) for name in ("fused", f"it+{ONE}"))
    assert fused.kl > 0.01
    assert beside.kl == pytest.approx(fused.kl, rel=1e-3)
    assert beside.kl_back == pytest.approx(fused.kl_back, rel=1e-3)
    assert beside.perplexities == pytest.approx(fused.perplexities, rel=1e-3)
    assert beside.same_top == fused.same_top
    assert compare(home, "fused", f"it+{ONE}").kl < 1e-6


def test_tokens_of_a_long_text_that_are_not_read_are_counted(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    given = compare(home, "fused", "fused", text=TEXT)
    assert given.tokens_left_out == 0
    monkeypatch.setattr(texts, "_MOST_TEXTS", 2)
    shown = run(home, "fused", "fused", "--text", str(tmp_path / "text.txt")).stdout.splitlines()
    left_out = given.tokens - 2 * texts.TOKENS
    assert shown[-1] == f"48 tokens of the text that was given; the {left_out} behind them were not read"


def test_quick_models_decode_more_tokens_and_neither_is_always_the_first(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside busy programs 22 pairs of 0.4 ms said that a model is 3.7 times as fast as itself."""
    order: list[int] = []
    made: list[Callable[[], None]] = []

    def decoder(*_: object) -> Callable[[], None]:
        place = len(made)
        made.append(lambda: order.append(place))
        return made[-1]

    monkeypatch.setattr(predictions, "_decoder", decoder)
    monkeypatch.setattr(predictions, "_MOST_TIMED", 100)
    compare(home, "fused", "fused", text=TEXT[:150], speed=True)
    assert order[:4] == [1, 0, 0, 1]
    assert len(order) > 2 * 24


def test_both_models_compute_with_as_many_threads_as_other_programs_leave(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No engine chooses here: beside busy programs a comparison took fifty times as long."""
    counts: list[int] = []

    class Crowded(Threads):
        def before_step(self, now_s: float, *, beside: bool = False) -> None:
            self.choice = replace(self.choice, threads=1)
            self._chooses = False
            super().before_step(now_s, beside=beside)
            counts.append(thread_count())

    monkeypatch.setattr(predictions, "Threads", Crowded)
    compare(home, "fused", "fused", text=TEXT[:150], speed=True)
    assert len(counts) > 2
    assert set(counts) <= {0, 1}


def test_kl_is_that_of_the_models_own_predictions(home: Path) -> None:
    text = "a bright cold day"
    with modelkit.load("it", home=home) as model:
        ids = model.encode(text)
        odds = [model.logits(ids, adapters=some).astype(np.float64) for some in ([], {ONE: 1.0, TWO: 0.5})]
    a, b = (one - np.log(np.exp(one).sum(-1, keepdims=True)) for one in odds)
    found = compare(home, "it", f"it+{ONE}+{TWO}=0.5", text=text)
    assert found.tokens == len(ids)
    assert found.kl == pytest.approx((np.exp(a) * (a - b)).sum(-1).mean(), rel=1e-3)


def test_where_one_name_chooses_the_other_has_what_it_names(home: Path) -> None:
    assert compare(home, "it", f"it+{ONE}", text=TEXT).adapters == ((), ((ONE, 1.0),))
    assert compare(home, f"it+{TWO}+{ONE}=-2", "it", text=TEXT).adapters == (((TWO, 1.0), (ONE, -2.0)), ())
    assert compare(home, "model", f"it+{ONE}=0", text=TEXT).kl == 0


def test_where_none_chooses_both_answer_as_they_do(home: Path) -> None:
    both = ((ONE, 1.0), (TWO, 1.0))
    found = compare(home, "model", "it", text=TEXT)
    assert found.adapters == ((), both)
    assert found.kl == compare(home, "model", f"it+{ONE}+{TWO}", text=TEXT).kl > 0
    same = compare(home, "it", "it", text=TEXT)
    assert (same.kl, same.adapters) == (0, (both, both))


def test_a_writes_its_text_with_its_adapters(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    honest = getattr(predictions, "_read")  # noqa: B009 -- what is private to pyright

    def watching(models: Any, texts: Any, *rest: Any) -> Any:
        seen.append(texts)
        return honest(models, texts, *rest)

    monkeypatch.setattr(predictions, "_read", watching)
    for a in ("fused", f"it+{ONE}", f"it+{ONE}=0"):
        compare(home, a, f"it+{TWO}")
    assert seen[0] == seen[1] != seen[2]


def test_speed_is_of_steps_with_them(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    honest = reading.adapters_of

    def watching(model: Any, rows: int) -> Any:
        found = honest(model, rows)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(predictions, "_read", lambda *_: (SAME, SAME))
    monkeypatch.setattr(reading, "adapters_of", watching)
    found = compare(home, "it", f"it+{ONE}", text=TEXT, speed=True)
    assert seen == [False, True]
    assert found.speed is not None
    assert found.speed > 0


def test_what_they_take_counts(home: Path) -> None:
    plain, one, none = (
        compare(home, "model", name, text=TEXT).weight_bytes[1]
        for name in ("model", f"it+{ONE}", f"it+{ONE}=0")
    )
    assert plain == none < one


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("it+law", f"it: the model has no adapter 'law' | It has {ONE}, {TWO}."),
        (f"it+{ONE}=much", f"it: the scale of {ONE} is 'much', expected a number from "),
        (f"it+{ONE}+{ONE}", f"it: the adapter {ONE} is named twice"),
        ("it+", "the model is 'it+', expected NAME, or NAME+ADAPTER for an adapter | NAME+ONE+TWO=0.5 has"),
        (
            "fused+law",
            "fused: the model has no adapter 'law' | It has none; ADAPTER in a Modelfile brings one",
        ),
    ],
)
def test_what_there_is_not(home: Path, name: str, said: str) -> None:
    with pytest.raises(RequestError) as refused:
        compare(home, "it", name)
    assert f"{refused.value.message} | {refused.value.hint}".startswith(said)


def test_what_is_not_there_with_a_plus(home: Path) -> None:
    with pytest.raises(ModelNotFound, match="there is no model other"):
        compare(home, "it", "other+law")


def test_what_to_do_is_said_of_the_name_that_is_not_there(home: Path) -> None:
    """It was said of the other one, which was open when that was looked for."""
    with pytest.raises(ModelNotFound) as refused:
        compare(home, "it", "nowhere")
    assert "ollama.com/nowhere" in (refused.value.hint or "")


def test_pluses_of_paths_are_theirs(tmp_path: Path) -> None:
    folder = tmp_path / "c++" / "a+b"
    folder.mkdir(parents=True)
    assert split_adapters(folder) == (folder, [])
    assert split_adapters(str(folder)) == (str(folder), [])
    assert split_adapters(f"{tmp_path}/c++/m+law=2") == (f"{tmp_path}/c++/m", ["law=2"])
    assert split_adapters("org/it+law+style") == ("org/it", ["law", "style"])


def run(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(
        cli, ["compare", *arguments], catch_exceptions=False, env={"MODELKIT_HOME": str(home)}
    )


def test_the_table_says_who_answered(home: Path) -> None:
    (home / "text.txt").write_text(TEXT, encoding="utf-8")
    shown = run(home, "it", f"it+{ONE}=0.5", "--text", str(home / "text.txt")).stdout.splitlines()
    assert shown[1].split() == ["adapters", "none", f"{ONE}=0.5"]
    assert "adapters" not in run(home, "fused", "fused").stdout
    found = json.loads(run(home, "it", f"it+{ONE}=0.5", "--json").stdout)
    assert (found["b"], found["adapters"]) == (f"it+{ONE}=0.5", [{}, {ONE: 0.5}])
