"""The Gemma 4 assistant drafts what transformers' drafts, from wherever the target's rows have come to."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.loaded import LoadedModel
from runtime.speculate.assistant import AssistantDrafter
from tests.support.assistants import DATA, load_assistant
from tests.support.bench import Action, Bench, actions_of


@pytest.fixture(scope="module", params=["plain", "clustered"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, LoadedModel, LoadedModel]:
    folder = tmp_path_factory.mktemp("pair")
    return request.param, load_assistant("target", folder), load_assistant(request.param, folder)


def bench_of(target: LoadedModel, draft: LoadedModel, rows: int) -> Bench:
    return Bench(target, lambda memory: AssistantDrafter(draft, target, lambda: memory, limit=5), rows)


@pytest.mark.parametrize("length", [9, 40], ids=["within the window", "beyond it"])
def test_drafts_are_those_of_transformers(pair: tuple[str, LoadedModel, LoadedModel], length: int) -> None:
    name, target, draft = pair
    with np.load(DATA / "gemma4_assistant.npz") as opened:
        ids, wanted = opened["ids"], opened[f"{name}_{length}"]
    bench = bench_of(target, draft, rows=1)
    known = [int(token) for token in ids[: length + 1]]
    bench.step([known[:-1]], [0], [length])
    bench.ids.append(known)
    assert bench.speculate(3, 0) == [[int(row.argmax()) for row in wanted]]


ACTIONS = actions_of(range(2, 31), range(3, 17), range(1, 5))


@settings(max_examples=10)
@given(actions=st.lists(ACTIONS, min_size=4, max_size=10))
def test_drafts_do_not_depend_on_how_a_row_came_to_its_tokens(
    pair: tuple[str, LoadedModel, LoadedModel], actions: list[Action]
) -> None:
    _, target, draft = pair
    bench = bench_of(target, draft, rows=3)
    for ids, depth, drafted in bench.play([("admit", 5, 5), *actions]):
        assert drafted == anew(target, draft, ids, depth)


def anew(target: LoadedModel, draft: LoadedModel, ids: list[int], depth: int) -> list[int]:
    """Drafts after `ids` for a target that read them in one go."""
    bench = bench_of(target, draft, rows=1)
    bench.step([ids[:-1]], [0], [len(ids) - 1])
    bench.ids.append(list(ids))
    return bench.speculate(depth, 0)[0]
