"""What is shown of speculation: after an answer, and of a package."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from click.testing import Result

from modelkit.answers.generation import Generation
from modelkit.cli.answer import timings
from modelkit.learned import Learning
from modelkit.memory import Memory
from modelkit.store.store import Store
from runtime.engine.request import Drafts, Usage

Run = Callable[..., Result]
GRADES = [
    {"grade": 1, "depth": 0, "accepted": [[0.25, 40]]},
    {"grade": 3, "depth": 2, "accepted": [[0.9, 40], [0.5, 20], [0.1, 9]]},
]
LEARNED = {
    "version": 2,
    "drafters": [{"drafter": "lookup", "rows": 1, "costs": [[2, 1.5]], "grades": GRADES}],
}


def last_line(*drafts: Drafts) -> str:
    usage = Usage(
        prompt_tokens=5,
        generated_tokens=61,
        drafted_tokens=sum(one.drafted_tokens for one in drafts),
        accepted_tokens=sum(one.accepted_tokens for one in drafts),
        rounds=24,
        drafts=drafts,
    )
    model: Any = SimpleNamespace(load_s=1.0, threads=None, memory=Memory(1, 1, 1, 1), context_length=64)
    return timings(Generation("", (), usage, "length", 7), model).splitlines()[-1]


def test_an_answer_tells_how_many_guesses_were_right() -> None:
    words = " ".join(last_line(Drafts("draft", 48, 36)).split())
    assert words == "draft 36 of 48 drafted tokens accepted; 61 tokens in 25 passes"


def test_several_drafters_are_told_apart() -> None:
    shown = last_line(Drafts("draft", 40, 30), Drafts("lookup", 8, 6))
    assert "36 of 48 drafted tokens accepted (draft 30 of 40, lookup 6 of 8)" in shown


def test_show_tells_what_the_next_run_begins_with(modelkit: Run, created: Run, home: Path) -> None:
    created("story")
    assert "Speculation" not in modelkit("show", "story").stdout
    Learning(home, str(Store(home).resolve("story").digest), "a machine").keep(LEARNED)
    shown = modelkit("show", "story").stdout
    section = shown[shown.index("Speculation") :].split("\n\n")[0]
    rows = [line.split() for line in section.splitlines()[1:]]
    assert rows == [
        ["lookup", "1", "depth", "0", "accepts", "25%"],
        ["lookup", "3", "depth", "2", "accepts", "90%,", "50%"],
    ]
    assert section.startswith("Speculation (a machine)\n")


def test_show_names_the_grades_of_every_drafter_that_has_several(
    modelkit: Run, created: Run, home: Path
) -> None:
    created("story")
    kinds = [
        {"drafter": "draft", "rows": 1, "costs": [[2, 1.5]], "grades": GRADES[:1]},
        {"drafter": "grammar", "rows": 1, "costs": [[2, 1.5]], "grades": GRADES},
    ]
    Learning(home, str(Store(home).resolve("story").digest), "a machine").keep(
        {"version": 2, "drafters": kinds}
    )
    shown = modelkit("show", "story").stdout
    rows = [line.split("  ")[2] for line in shown[shown.index("Speculation") :].splitlines()[1:4]]
    assert rows == ["draft", "grammar 1", "grammar 3"]


def test_show_has_it_as_json(modelkit: Run, created: Run, home: Path) -> None:
    created("story")
    Learning(home, str(Store(home).resolve("story").digest), "a machine").keep(LEARNED)
    learned = json.loads(modelkit("show", "story", "--json").stdout)["speculation"]
    assert [(one["grade"], one["depth"], one["acceptance"]) for one in learned] == [
        (1, 0, [0.25]),
        (3, 2, [0.9, 0.5, 0.1]),
    ]
