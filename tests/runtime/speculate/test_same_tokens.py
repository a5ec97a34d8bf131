"""With heads and assistants, too, tokens are those of plain decoding: in batches, at any depth, warm."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.cache.build import build_memory
from runtime.cache.memory import LayerMemory
from runtime.engine.engine import Engine, Options
from runtime.engine.request import Request
from runtime.loaded import LoadedModel
from runtime.sampling.params import SamplingParams
from runtime.speculate import head as head_room
from runtime.speculate.assistant import AssistantDrafter, assistant_problem
from runtime.speculate.drafter import Drafter, Proposal, Rows
from runtime.speculate.forced_tokens import ForcedDrafter
from runtime.speculate.head import HeadDrafter
from runtime.speculate.ngram import NgramDrafter
from runtime.speculate.pair import drafters_for
from tests.support import drafting
from tests.support.assistants import load_assistant
from tests.support.drafting import Texts, put_right, texts_of
from tests.support.engines import prompt
from tests.support.heads import HeadReference

GREEDY = SamplingParams(temperature=0)
WARM = SamplingParams(temperature=1.0, top_k=30, repeat_penalty=1.3, presence_penalty=0.2, seed=5)
OPTIONS = Options(context_length=256, budget_tokens=16, max_rows=4)
Loader = Callable[[], LoadedModel]


@pytest.fixture(autouse=True)
def _always_drafting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Depths 0 to 6 in turn, whatever pays, and flushes in the middle of prompts."""
    drafting.always_drafting(monkeypatch)
    monkeypatch.setattr(head_room, "FLUSH", 12)


class Helped:
    """A drafter that guesses right more often than its random weights do."""

    def __init__(self, inner: Drafter, known: Texts) -> None:
        self.inner, self.known = inner, known
        self.limit, self.token_cost = inner.limit, inner.token_cost
        self.begin, self.end = inner.begin, inner.end
        self.observe, self.settle = inner.observe, inner.settle
        self.move, self.clear, self.resize = inner.move, inner.clear, inner.resize

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        return put_right(self.inner.propose(rows, depth), rows, depth, self.known)


def requests(sampling: SamplingParams) -> list[Request]:
    """Prompts of different lengths; the fourth waits for a place."""
    prompts = [prompt(n, 1 + 13 * n) for n in range(5)]
    return [Request((n + 3, *ids), 30, sampling) for n, ids in enumerate(prompts)]


@pytest.fixture(
    scope="module", params=["qwen3_5", "deepseek_v3", "glm4_moe", "gemma4_plain", "gemma4_clustered"]
)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Loader, Loader | None, Texts, Texts]:
    """Loaders of a target and of its draft, and what the target says by itself, cold and warm."""
    folder, name = tmp_path_factory.mktemp("pair"), str(request.param)
    if name.startswith("gemma4"):
        target: Loader = lambda: load_assistant("target", folder)  # noqa: E731
        draft: Loader | None = lambda: load_assistant(name.removeprefix("gemma4_"), folder)  # noqa: E731
    else:
        target, draft = lambda: HeadReference(name).load(folder), None
    engine = Engine(target, OPTIONS)
    cold, warm = (texts_of(engine, requests(sampling))[0] for sampling in (GREEDY, WARM))
    engine.close()
    return target, draft, cold, warm


@pytest.mark.parametrize("helped", [False, True], ids=["random", "helped"])
@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_the_tokens_are_those_of_plain_decoding(
    pair: tuple[Loader, Loader | None, Texts, Texts], sampling: SamplingParams, helped: bool
) -> None:
    load, load_draft, cold, warm = pair
    wanted = cold if sampling is GREEDY else warm

    def make(target: LoadedModel, memory: LayerMemory) -> dict[str, Drafter]:
        draft = None if load_draft is None else load_draft()
        found = drafters_for(target, draft, memory)
        own = found["head" if draft is None else "draft"]
        return {"own": Helped(own, wanted) if helped else own}

    engine = Engine(load, OPTIONS, make)
    got, usages = texts_of(engine, requests(sampling))
    engine.close()
    assert got == wanted
    drafted, accepted = sum(u.drafted_tokens for u in usages), sum(u.accepted_tokens for u in usages)
    assert drafted > 50
    assert not helped or accepted > 0.3 * drafted


def test_who_stands_by(tmp_path: Path) -> None:
    headed, (target, draft) = (
        HeadReference("glm4_moe").load(tmp_path / "head"),
        [load_assistant(name, tmp_path) for name in ("target", "plain")],
    )
    kinds = {
        name: {key: type(drafter) for key, drafter in drafters_for(*given, build_memory([])).items()}
        for name, given in {"head": (headed, None), "draft": (target, draft), "none": (target, None)}.items()
    }
    assert kinds == {
        "head": {"head": HeadDrafter, "lookup": NgramDrafter, "grammar": ForcedDrafter},
        "draft": {"draft": AssistantDrafter, "lookup": NgramDrafter, "grammar": ForcedDrafter},
        "none": {"lookup": NgramDrafter, "grammar": ForcedDrafter},
    }


def test_an_assistant_of_another_target_is_told_apart(tmp_path: Path) -> None:
    target, draft = (load_assistant(name, tmp_path).described for name in ("target", "plain"))
    other = HeadReference("glm4_moe").load(tmp_path / "head").described
    assert assistant_problem(draft, target) is None
    assert "sliding attention layer" in str(assistant_problem(draft, other))
