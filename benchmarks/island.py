"""The example pair: how many drafted tokens are accepted, and what that wins over plain decoding, in one run.

    python benchmarks/island.py [--rounds 5] [--peer PYTHON]

Packages are made from Modelfile.example, with the draft as it is and in q4. Every question is answered
plainly and with the draft in turn, so that what else the machine does touches both alike. Times run from the
first token of an answer to its last. A ratio is the median over rounds; the first round ("cold"), in which
depths are learned, stands apart. The texts must be the same.

PYTHON is an interpreter with mlx-lm. It answers the same questions greedily, plainly and with mlx-lm's own
speculative decoding, in the same turns.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import modelkit  # noqa: E402
from modelkit.generation import Generation  # noqa: E402

ASKED = (
    "Tell me a story.",
    "Tell me a story about Pip and the rain.",
    "Tell me how Tam came home from the sea.",
    "Who is the baker?",
)
SYSTEM = "You are the storyteller of Lantern Island."  # as in Modelfile.example
PLAIN = "plain"
DRAFTS = {"draft": None, "draft in q4": "q4"}
SETTINGS = {"greedy": {"temperature": 0.0}, "T=0.7": {}}


class Peer:
    """mlx-lm in a process of its own."""

    def __init__(self, python: str) -> None:
        script = str(Path(__file__).with_name("island_peer.py"))
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
    parser.add_argument("--peer", metavar="PYTHON")
    options = parser.parse_args()
    for label, quantize in DRAFTS.items():
        for setting, parameters in SETTINGS.items():
            # A store of its own for each: what one run learns about a draft, the next would know.
            with tempfile.TemporaryDirectory() as home:
                modelkit.create(ROOT / "Modelfile.example", name="pair", quantize_draft=quantize, home=home)
                peer = Peer(options.peer) if options.peer and not quantize and setting == "greedy" else None
                with modelkit.load("pair", home=home, seed=7) as model:
                    said = _compare(model, parameters, options.rounds, peer)
                print(f"{label}, {setting}: {said}", flush=True)
                if peer is not None:
                    peer.close()


def _compare(model: modelkit.Model, parameters: dict[str, float], rounds: int, peer: Peer | None) -> str:
    """Ratios of seconds, by who was slower than our drafted decoding."""
    ratios: dict[str, list[float]] = {}
    answers: list[Generation] = []
    same = True
    for _ in range(1 + rounds):
        answers, seconds = [], Counter[str]()
        for asked in ASKED:
            plain = model.generate(asked, draft_num_predict=0, **parameters)
            drafted = model.generate(asked, **parameters)
            same = same and drafted.ids == plain.ids
            seconds += Counter({PLAIN: plain.usage.decode_s, "": drafted.usage.decode_s})
            for name, theirs in (peer.answer(asked) if peer else {}).items():
                same = same and tuple(theirs["ids"]) == plain.ids
                seconds += Counter({f"mlx-lm's {name}": theirs["seconds"]})
            answers.append(drafted)
        for name in seconds.keys() - {""}:
            ratios.setdefault(name, []).append(seconds[name] / seconds[""])
    times = [
        f"{statistics.median(of[1:]):.2f} times as fast as {name} decoding (cold {of[0]:.2f})"
        for name, of in sorted(ratios.items(), key=lambda pair: pair[0] != PLAIN)
    ]
    return f"{', '.join(times)}, {_said(answers, same)}"


def _said(answers: list[Generation], same: bool) -> str:
    usages = [answer.usage for answer in answers]
    drafted, accepted = sum(u.drafted_tokens for u in usages), sum(u.accepted_tokens for u in usages)
    passes, made = sum(u.rounds for u in usages), sum(u.generated_tokens - 1 for u in usages)
    share = f"{accepted / drafted:.0%} of drafted tokens accepted" if drafted else "nothing drafted"
    text = "the same text" if same else "ANOTHER TEXT"
    return f"{share}, {made / passes:.2f} tokens per pass of the target, {text}"


if __name__ == "__main__":
    main()
