"""The example pair: how many drafted tokens are accepted, and what that wins over plain decoding, in one run.

python benchmarks/example_pair.py [--rounds 5] [--runs 1] [--useless] [--peer PYTHON]

Packages are made from Modelfile.example, with the draft as it is, in q4, and (--useless) with a draft of the
same shape that is never right. Every question is answered plainly, with the draft, and plainly again, so that
what else the machine does touches both alike; where the two plain answers differ by more than speculation
could win, the machine is too busy to tell, and that is said. Times run from the first token of an answer to
its last. A ratio is the median over rounds; the first round ("cold"), in which depths are learned, stands
apart. The texts must be the same.

--runs N repeats the whole N times with nothing learned, and prints the median, least and greatest of both
ratios.

PYTHON is an interpreter with mlx-lm. It answers the same questions greedily, plainly and with mlx-lm's own
speculative decoding, in the same turns.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import mlx.core as mx  # noqa: E402

import modelkit  # noqa: E402
from modelkit.answers.generation import Generation  # noqa: E402

ASKED = (
    "Tell me a story.",
    "Tell me a story about Pip and the rain.",
    "Tell me how Tam came home from the sea.",
    "Who is the baker?",
)
SYSTEM = "You are the storyteller of Lantern Island."  # as in Modelfile.example
PLAIN, AGAIN, DRAFTED, BOTH = "first plain", "second plain", "drafted", "plain"
DRAFTS = {"draft": None, "draft in q4": "q4"}
USELESS = "useless draft"
UNSTEADY = 1.25  # the two plain answers differ by this factor in most rounds: too busy to tell
SETTINGS = {"greedy": {"temperature": 0.0}, "T=0.7": {}}


class Peer:
    """mlx-lm in a process of its own."""

    def __init__(self, python: str) -> None:
        script = str(Path(__file__).with_name("example_pair_peer.py"))
        folders = [str(ROOT / "examples" / "island" / name) for name in ("target", "draft")]
        self._process = subprocess.Popen(
            [python, script, *folders], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def answer(self, asked: str) -> dict[str, dict[str, Any]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": asked}]
        print(json.dumps(messages), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument(
        "--useless", action="store_true", help="with a draft that is never right, and no other"
    )
    parser.add_argument("--peer", metavar="PYTHON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        drafts = {USELESS: None} if options.useless else DRAFTS
        recipe = _useless(Path(place)) if options.useless else ROOT / "Modelfile.example"
        for label, quantize in drafts.items():
            for setting, parameters in SETTINGS.items():
                peer = (
                    Peer(options.peer) if options.peer and label == "draft" and setting == "greedy" else None
                )
                runs = [
                    _run(
                        Path(place, f"{label} {setting} {n}"),
                        recipe,
                        quantize,
                        parameters,
                        options.rounds,
                        peer,
                    )
                    for n in range(options.runs)
                ]
                print(f"{label}, {setting}: {_told(runs)}", flush=True)
                if peer is not None:
                    peer.close()


def _useless(folder: Path) -> Path:
    """A Modelfile whose draft has the example's shape and weights in another order."""
    source, draft = ROOT / "examples" / "island" / "draft", folder / "draft"
    shutil.copytree(source, draft)
    weights = mx.load(str(source / "model.safetensors"))
    assert isinstance(weights, dict)
    mixed = {
        name: mx.random.permutation(array.reshape(-1)).reshape(array.shape) for name, array in weights.items()
    }
    mx.save_safetensors(str(draft / "model.safetensors"), mixed, {"format": "pt"})
    text = (ROOT / "Modelfile.example").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.upper().startswith(("FROM ", "DRAFT "))]
    recipe = folder / "Modelfile"
    target = ROOT / "examples" / "island" / "target"
    recipe.write_text("\n".join([f"FROM {target}", f"DRAFT {draft}", *lines]), encoding="utf-8")
    return recipe


@dataclass
class Run:
    """Seconds by who answered, of each round; the first round is the cold one."""

    seconds: list[Counter[str]]
    answers: list[Generation]
    same: bool

    def ratios(self, name: str) -> tuple[float, float]:
        """How many times as fast our drafted decoding is: warm, cold."""
        of = [round_[name] / round_[DRAFTED] for round_ in self.seconds]
        return statistics.median(of[1:]), of[0]

    @property
    def unsteady(self) -> float:
        """By how much the two plain answers of a round differ, as a factor."""
        apart = [max(one[PLAIN], one[AGAIN]) / min(one[PLAIN], one[AGAIN]) for one in self.seconds]
        return statistics.median(apart)


def _run(
    home: Path,
    recipe: Path,
    quantize: str | None,
    parameters: dict[str, float],
    rounds: int,
    peer: Peer | None,
) -> Run:
    # A store of its own for each: what one run learns about a draft, the next would know.
    modelkit.create(recipe, name="pair", quantize_draft=quantize, home=home)
    with modelkit.load("pair", home=home, seed=7) as model:
        taken = [_round(model, parameters, peer) for _ in range(1 + rounds)]
    return Run([one[0] for one in taken], taken[-1][1], all(one[2] for one in taken))


def _round(
    model: modelkit.Model, parameters: dict[str, float], peer: Peer | None
) -> tuple[Counter[str], list[Generation], bool]:
    seconds, answers, same = Counter[str](), list[Generation](), True
    for asked in ASKED:
        plain = model.generate(asked, draft_num_predict=0, **parameters)
        drafted = model.generate(asked, **parameters)
        again = model.generate(asked, draft_num_predict=0, **parameters)
        same = same and drafted.ids == plain.ids == again.ids
        seconds[PLAIN] += plain.usage.decode_s
        seconds[AGAIN] += again.usage.decode_s
        seconds[DRAFTED] += drafted.usage.decode_s
        for name, theirs in (peer.answer(asked) if peer else {}).items():
            same = same and tuple(theirs["ids"]) == plain.ids
            seconds[f"mlx-lm's {name}"] += theirs["seconds"]
        answers.append(drafted)
    return seconds, answers, same


def _told(runs: list[Run]) -> str:
    for run in runs:
        for one in run.seconds:
            one[BOTH] = (one[PLAIN] + one[AGAIN]) / 2
    names = [BOTH, *sorted(runs[0].seconds[0].keys() - {PLAIN, AGAIN, DRAFTED, BOTH})]
    times = [f"{_spread([run.ratios(name) for run in runs])} as fast as {name} decoding" for name in names]
    unsteady = statistics.median(run.unsteady for run in runs)
    doubt = f"; too busy to tell: the same plain answer twice took {unsteady:.2f} times as long" * (
        unsteady > UNSTEADY
    )
    return f"{', '.join(times)}, {_said(runs[-1].answers, all(run.same for run in runs))}{doubt}"


def _spread(ratios: list[tuple[float, float]]) -> str:
    warm, cold = zip(*ratios, strict=True)
    if len(ratios) == 1:
        return f"{warm[0]:.2f} times ({cold[0]:.2f} while depths were learned)"
    told = [f"{statistics.median(of):.2f} ({min(of):.2f} to {max(of):.2f})" for of in (warm, cold)]
    return f"{told[0]} times, cold {told[1]},"


def _said(answers: list[Generation], same: bool) -> str:
    usages = [answer.usage for answer in answers]
    drafted, accepted = sum(u.drafted_tokens for u in usages), sum(u.accepted_tokens for u in usages)
    passes, made = sum(u.rounds for u in usages), sum(u.generated_tokens - 1 for u in usages)
    share = f"{accepted / drafted:.0%} of drafted tokens accepted" if drafted else "nothing drafted"
    text = "the same text" if same else "ANOTHER TEXT"
    return f"{share}, {made / passes:.2f} tokens per pass of the target, {text}"


if __name__ == "__main__":
    main()
