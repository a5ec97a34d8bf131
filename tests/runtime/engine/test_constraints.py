"""Grammars compose with everything: batches, guesses, penalties, log-probabilities, cancelled and resumed
rows.

The grammar here is a toy that can be checked by hand: which ids may come next depends on all that came
before.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from runtime.engine.drawing import Drawing, Drawn
from runtime.engine.engine import Engine, Options
from runtime.engine.request import Delta, Request
from runtime.loaded import LoadedModel
from runtime.ranks.group import Group
from runtime.ranks.lead import Lead, Leading
from runtime.sampling.constraint import Ahead, ConstraintFault
from runtime.sampling.params import SamplingParams
from runtime.speculate.draft_model import ModelDrafter
from runtime.speculate.drafter import Drafter, Rows
from runtime.speculate.forced_tokens import ForcedDrafter
from runtime.speculate.ngram import NgramDrafter
from tests.support.drafting import Scripted, always_drafting, noise
from tests.support.engines import GREEDY, answer, answers, ids_of, prompt, run, start
from tests.support.parity import Reference

V = 160
LENGTH = 20
WARM = SamplingParams(temperature=1.0, top_k=30, repeat_penalty=1.3, presence_penalty=0.2, seed=5)
REJECTING = replace(WARM, draft_acceptance="rejection")


@dataclass(frozen=True)
class Toy:
    """One id in four may follow, which ones depends on the sum so far; whole after `length` tokens.

    broken: cannot say what follows so many tokens. first: tokens that count as taken already. runs: of five
    tokens, three are forced. steady: what may follow changes with one token in six.
    """

    length: int = 25
    broken: int = 10**9
    first: tuple[int, ...] = ()
    runs: bool = False
    steady: bool = False

    def matcher(self) -> "ToyMatcher":
        return ToyMatcher(self, list(self.first))

    def allowed(self, taken: Sequence[int]) -> list[bool]:
        if self.steady:
            return [token % 4 == sum(one % 6 == 0 for one in taken) % 4 for token in range(V)]
        if (only := self.only(taken)) is not None:
            return [token == only for token in range(V)]
        return [(token + sum(taken)) % 4 == 1 for token in range(V)]

    def only(self, taken: Sequence[int]) -> int | None:
        if not self.runs or len(taken) % 5 < 2:
            return None
        return (1 - sum(taken)) % 4 + 4 * (len(taken) % 39)


@dataclass
class ToyMatcher:
    toy: Toy
    taken: list[int] = field(default_factory=list[int])
    masks: int = 0

    @property
    def ended(self) -> bool:
        return len(self.taken) >= self.toy.length

    def mask(self) -> bytes:
        assert not self.ended
        self.masks += 1
        if len(self.taken) >= self.toy.broken:
            raise ConstraintFault("the toy is broken")
        return np.packbits(self.toy.allowed(self.taken), bitorder="little").tobytes()

    def advance(self, token: int) -> None:
        assert not self.ended
        assert self.toy.allowed(self.taken)[token]
        self.taken.append(token)

    def back(self, count: int) -> None:
        del self.taken[len(self.taken) - count :]

    def forced(self, limit: int) -> list[int]:
        ahead = list[int]()
        while len(ahead) < limit and len(taken := self.taken + ahead) < self.toy.length:
            if (only := self.toy.only(taken)) is None:
                break
            ahead.append(only)
        return ahead


@pytest.fixture(autouse=True)
def _drafting(monkeypatch: pytest.MonkeyPatch) -> None:
    always_drafting(monkeypatch)


def obedient(ids: list[int], depth: int) -> list[int]:
    """Guesses what the toy allows, whatever the prompt was: with a prompt whose ids sum to 0 mod 4."""
    out: list[int] = []
    for place in range(depth):
        out.append((1 - sum(ids) - sum(out)) % 4 + 4 * ((len(ids) + place) % 39))
    return out


DRAFTERS: dict[str, dict[str, Drafter]] = {
    "noise": {"noise": Scripted(noise)},
    "obedient": {"obedient": Scripted(obedient)},
    "ngram": {"ngram": NgramDrafter(shortest=1)},
    "forced": {"grammar": ForcedDrafter()},
    "forced, noise": {"grammar": ForcedDrafter(), "noise": Scripted(noise)},
}


def begin(folder: Path, entry: str, kind: str | None = None, prefix_bytes: int | None = None) -> Engine:
    def make(model: LoadedModel, memory: object) -> dict[str, Drafter]:
        if kind in ("itself", "other"):
            loaded = Reference(entry if kind == "itself" else "qwen2").load(folder / "draft")
            return {"model": ModelDrafter(loaded, vocab_size=model.vocab_size)}
        return DRAFTERS[kind] if kind else {}

    return start(folder / "target", entry, make, prefix_bytes=prefix_bytes)


def requests(sampling: SamplingParams, *, runs: bool = False) -> list[Request]:
    """Rows with one grammar, another, and none; some end by a stop id, some by length, some whole."""
    grammars = [Toy(15, runs=runs), None, Toy(9, runs=runs), Toy(60, runs=True), Toy(15, runs=runs)]
    return [
        Request(
            prompt(number, 6 + 5 * number),
            LENGTH,
            sampling,
            frozenset({4 * number + 40}),
            top_logprobs=2 if number % 2 else None,
            constraint=grammar,
        )
        for number, grammar in enumerate(grammars)
    ]


def told(engine: Engine, asked: list[Request], *, together: bool) -> tuple[list[list[int]], list[str]]:
    """What requests are answered, and how that ends."""
    texts, finishes = run(engine, asked, together=together)
    return texts, [finish.reason for finish in finishes]


WANTED: dict[tuple[str, SamplingParams, bool], tuple[list[list[int]], list[str]]] = {}


def alone(
    entry: str, engine: Engine, sampling: SamplingParams, *, runs: bool
) -> tuple[list[list[int]], list[str]]:
    """What plain decoding says, one request at a time."""
    if (entry, sampling, runs) not in WANTED:
        WANTED[entry, sampling, runs] = told(engine, requests(sampling, runs=runs), together=False)
    return WANTED[entry, sampling, runs]


@pytest.fixture(scope="module", params=["llama", "mistral_window", "mamba2"])
def plain(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Engine]]:
    engine = begin(tmp_path_factory.mktemp("plain"), request.param)
    yield request.param, engine
    engine.close()


def until_broken(stream: Iterable[Delta]) -> Iterator[Delta]:
    with suppress(ConstraintFault):
        yield from stream


@dataclass
class Spoilt(ToyMatcher):
    """Refuses what its mask allows once it has gone back over several tokens."""

    spoilt: bool = False

    def advance(self, token: int) -> None:
        if self.spoilt:
            raise ConstraintFault("it cannot go on")
        super().advance(token)

    def back(self, count: int) -> None:
        super().back(count)
        self.spoilt = self.spoilt or count > 1


@dataclass(frozen=True)
class Spoiling(Toy):
    def matcher(self) -> ToyMatcher:
        return Spoilt(self)


def test_an_answer_that_fails_inside_a_block_ends_alone(tmp_path: Path) -> None:
    prompt = tuple(range(4, 20))
    engine = begin(tmp_path, "llama", "forced", prefix_bytes=10**7)
    try:
        other = Request(prompt, LENGTH, GREEDY, constraint=Toy(60, runs=True))
        alone = answer(engine, other)
        failing, beside = (
            engine.submit(replace(other, constraint=Spoiling(60, runs=True))),
            engine.submit(other),
        )
        with pytest.raises(ConstraintFault, match="it cannot go on"):
            list(failing)
        assert ids_of(beside) == alone
    finally:
        engine.close()


@pytest.mark.parametrize("length", range(3, 9))
def test_the_last_row_with_a_grammar_leaves_in_the_middle_of_its_step(
    plain: tuple[str, Engine], length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where rows decode in parts, as in stages on several machines, and a prompt is read beside it."""
    monkeypatch.setattr(Lead, "parts", 2)
    options = Options(context_length=256, budget_tokens=4)
    engine = Engine(lambda: Reference(plain[0]).load(tmp_path), options, leading=Leading(Group.alone()))
    first = Request((5, 6, 7), LENGTH, GREEDY, constraint=Toy(length, runs=True))
    asked = [first, Request(tuple(range(3, 90)), 4, GREEDY)]
    try:
        assert told(engine, asked, together=True) == told(plain[1], asked, together=False)
    finally:
        engine.close()


def follows(toy: Toy, ids: Sequence[int]) -> bool:
    return all(toy.allowed(ids[:place])[token] for place, token in enumerate(ids)) and len(ids) <= toy.length


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_answers_follow_their_grammars_and_end_when_whole(
    plain: tuple[str, Engine], sampling: SamplingParams
) -> None:
    asked = requests(sampling)
    texts, reasons = told(plain[1], asked, together=True)
    for one, ids, reason in zip(asked, texts, reasons, strict=True):
        if isinstance(one.constraint, Toy):
            assert follows(one.constraint, ids)
            assert reason == ("length" if len(ids) == LENGTH else "stop")


@pytest.mark.parametrize(
    ("kind", "sampling"),
    [
        ("noise", GREEDY),
        ("obedient", WARM),
        ("ngram", GREEDY),
        ("itself", WARM),
        ("other", WARM),
        (None, WARM),
        ("forced", WARM),
        ("forced", GREEDY),
        ("forced, noise", WARM),
    ],
    ids=[
        "noise",
        "obedient",
        "ngram",
        "itself",
        "other",
        "together",
        "forced",
        "forced greedy",
        "forced too",
    ],
)
def test_the_tokens_are_those_of_plain_decoding(
    plain: tuple[str, Engine], tmp_path: Path, kind: str | None, sampling: SamplingParams
) -> None:
    entry, engine = plain
    runs = kind is not None and kind.startswith("forced")
    asked = requests(sampling, runs=runs)
    wanted = alone(entry, engine, sampling, runs=runs)
    speculating = begin(tmp_path, entry, kind)
    texts, finishes = run(speculating, asked)
    speculating.close()
    assert (texts, [finish.reason for finish in finishes]) == wanted
    usages = [finish.usage for finish in finishes]
    drafted, accepted = sum(u.drafted_tokens for u in usages), sum(u.accepted_tokens for u in usages)
    if kind == "itself":  # its drafts are masked as well; what it guesses behind an answer's end is lost
        assert accepted > 0.7 * drafted > 0
    if kind == "forced":  # all that is lost stands behind a stop id
        assert accepted > 0.5 * drafted > 0


@pytest.mark.parametrize("kind", ["other", "forced"])
def test_answers_judged_by_rejection_follow_their_grammars(
    plain: tuple[str, Engine], tmp_path: Path, kind: str
) -> None:
    asked = requests(REJECTING, runs=True)
    engine = begin(tmp_path, plain[0], kind)
    texts, finishes = run(engine, asked)
    engine.close()
    assert all(
        follows(one.constraint, ids)
        for one, ids in zip(asked, texts, strict=True)
        if isinstance(one.constraint, Toy)
    )
    assert sum(finish.usage.drafted_tokens for finish in finishes) > 0


def test_log_probabilities_are_the_models_own(plain: tuple[str, Engine]) -> None:
    one = Request((5, 6, 7, 8), 6, WARM, top_logprobs=3, constraint=Toy())
    details = [detail for delta in plain[1].submit(one) for detail in delta.logprobs]
    free = next(iter(plain[1].submit(replace(one, constraint=None)))).logprobs[0]
    assert details[0].top == free.top
    assert any(best % 4 != 1 for best, _ in free.top)


def test_a_row_that_was_cancelled_is_resumed_where_it_stood(
    plain: tuple[str, Engine], tmp_path: Path
) -> None:
    entry, engine = plain
    one = Request((9, 8, 7, 6, 5), 20, replace(WARM, repeat_last_n=-1), constraint=Toy(20))
    whole = answer(engine, one)
    speculating = begin(tmp_path, entry, "itself")
    stream, begun = speculating.submit(one), list[int]()
    for delta in stream:
        begun += delta.ids
        if len(begun) >= 7:
            break
    rest = replace(
        one, ids=one.ids + tuple(begun), max_tokens=20 - len(begun), constraint=Toy(20, first=tuple(begun))
    )
    text = answer(speculating, rest)
    speculating.close()
    assert begun + text == whole


@pytest.mark.parametrize("kind", [None, "itself"])
def test_a_grammar_that_fails_ends_its_own_row_only(
    plain: tuple[str, Engine], tmp_path: Path, kind: str | None
) -> None:
    good = Request((5, 6, 7), 20, WARM, constraint=Toy(20))
    wanted = answer(plain[1], good)
    engine = begin(tmp_path, plain[0], kind)
    streams = [engine.submit(one) for one in (good, replace(good, constraint=Toy(20, broken=6)))]
    whole, cut = (ids_of(stream) for stream in map(until_broken, streams))
    engine.close()
    assert (whole, cut) == (wanted, wanted[:6])


def test_a_step_without_grammars_looks_at_nothing(
    plain: tuple[str, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ahead, "__init__", lambda *_: pytest.fail("masks were asked for"))
    answers(plain[1], [replace(one, constraint=None) for one in requests(WARM)])


@pytest.mark.parametrize("sampling", [GREEDY, WARM, REJECTING], ids=["greedy", "warm", "rejecting"])
def test_what_a_mask_that_seemed_to_stay_has_drawn_is_drawn_again(
    plain: tuple[str, Engine], sampling: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    grammars = [Toy(18, steady=True), None, Toy(30, steady=True), Toy(30)]
    asked = [
        replace(one, constraint=grammar) for one, grammar in zip(requests(sampling), grammars, strict=False)
    ]
    with monkeypatch.context() as waiting:
        waiting.setattr(Drawing, "steady", lambda *_: None)
        wanted = told(plain[1], asked, together=False)
    counts, checked = {"kept": 0, "again": 0}, Drawing.checked

    def counted(self: Drawing, drawn: Drawn) -> Drawn:
        found = checked(self, drawn)
        if drawn.assumed is not None:
            counts["kept" if found is drawn else "again"] += 1
        return found

    monkeypatch.setattr(Drawing, "checked", counted)
    assert told(plain[1], asked, together=False) == wanted
    assert answers(plain[1], asked[:3]) == wanted[0][:3]
    assert min(counts.values()) > 0


def test_masks_known_from_drafting_are_not_asked_for_again() -> None:
    matcher = Toy().matcher()
    ahead = Ahead([matcher], V)
    drafts = obedient([], 3)
    for count in range(3):
        ahead.last([drafts[:count]])
    assert matcher.masks == 3
    ahead.block([drafts], 4)
    assert matcher.masks == 4
    assert matcher.taken == []
    assert ahead.allowed(0, drafts) == 3


def test_masks_end_behind_a_draft_that_is_refused() -> None:
    matcher = Toy().matcher()
    ahead = Ahead([matcher, None], V)
    right = obedient([], 1)[0]
    mask = np.array(ahead.block([[right, right + 1, 5], [1, 2, 3]], 4))
    assert ahead.allowed(0, [right, right + 1, 5]) == 1
    assert [row.sum() for row in mask[0]] == [V // 4, V // 4, V, V]
    assert mask[1].all()
    assert ahead.allowed(1, [1, 2, 3]) == 3


def test_a_drafter_draws_within_the_grammar() -> None:
    from runtime.sampling.sampler import Sampler
    from runtime.speculate.chain import DraftChain

    toy = Toy()
    rows = Rows([[3, 4]], Sampler([WARM]), Ahead([toy.matcher()], V))
    chain = DraftChain(rows)
    for _ in range(4):
        chain.draw(mx.random.normal((1, 1, V), key=mx.random.key(1)))
    assert follows(toy, chain.tokens.tolist()[0])  # pyright: ignore
