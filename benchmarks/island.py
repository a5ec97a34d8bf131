"""The example pair: how many drafted tokens are accepted, and what that wins over plain decoding, in one run.

    python benchmarks/island.py [--rounds 5]

Packages are made from Modelfile.example, with the draft as it is and in q4. Every question is answered
plainly and with the draft in turn, so that what else the machine does touches both alike; a first round, in
which depths are learned, does not count. A ratio is that of the seconds from the first token of an answer to
its last, the median over rounds. The texts must be the same.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

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
DRAFTS = {"draft": None, "draft in q4": "q4"}
SETTINGS = {"greedy": {"temperature": 0.0}, "T=0.7": {}}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as home:
        for label, quantize in DRAFTS.items():
            name = label.replace(" ", "-")
            modelkit.create(ROOT / "Modelfile.example", name=name, quantize_draft=quantize, home=home)
            with modelkit.load(name, home=home, seed=7) as model:
                for setting, parameters in SETTINGS.items():
                    print(f"{label}, {setting}: {_compare(model, parameters, rounds)}", flush=True)


def _compare(model: modelkit.Model, parameters: dict[str, float], rounds: int) -> str:
    ratios: list[float] = []
    answers: list[Generation] = []
    same = True
    for _ in range(1 + rounds):
        answers, plain_s, drafted_s = [], 0.0, 0.0
        for asked in ASKED:
            plain = model.generate(asked, draft_num_predict=0, **parameters)
            drafted = model.generate(asked, **parameters)
            same = same and drafted.ids == plain.ids
            plain_s, drafted_s = plain_s + plain.usage.decode_s, drafted_s + drafted.usage.decode_s
            answers.append(drafted)
        ratios.append(plain_s / drafted_s)
    return f"{statistics.median(ratios[1:]):.2f} times as fast as plain decoding, {_said(answers, same)}"


def _said(answers: list[Generation], same: bool) -> str:
    usages = [answer.usage for answer in answers]
    drafted, accepted = sum(u.drafted_tokens for u in usages), sum(u.accepted_tokens for u in usages)
    passes, made = sum(u.rounds for u in usages), sum(u.generated_tokens - 1 for u in usages)
    share = f"{accepted / drafted:.0%} of drafted tokens accepted" if drafted else "nothing drafted"
    text = "the same text" if same else "ANOTHER TEXT"
    return f"{share}, {made / passes:.2f} tokens per pass of the target, {text}"


if __name__ == "__main__":
    main()
