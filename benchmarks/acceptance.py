"""How many drafted tokens stand: coupled acceptance beside rejection sampling, at the same places.

    python benchmarks/acceptance.py [--target FOLDER --draft FOLDER] [--tokens 200] [--seeds 4] [PROMPT ...]

The target writes texts of its own; at each place the draft then guesses the next token, and both ways judge
it. "most" is what no way can pass on average: what the odds of target and draft have in common. Nothing is
timed.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import mlx.core as mx  # noqa: E402
import numpy as np  # noqa: E402

import modelkit  # noqa: E402
from runtime.sampling.params import SamplingParams  # noqa: E402
from runtime.sampling.rejection import Guesses  # noqa: E402
from runtime.sampling.sampler import Sampler  # noqa: E402

PROMPTS = ["Once upon a time", "One day, a little girl named Lily", "There was a big"]
SETTINGS = {
    "T=1.0": {"temperature": 1.0, "top_k": 0, "top_p": 1.0},
    "T=0.7": {"temperature": 0.7, "top_k": 0, "top_p": 1.0},
    "default": {"temperature": 0.8, "top_k": 40, "top_p": 0.9},
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", type=Path, default=ROOT / "examples" / "island" / "target")
    parser.add_argument("--draft", type=Path, default=ROOT / "examples" / "island" / "draft")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("prompts", nargs="*", metavar="PROMPT", default=PROMPTS)
    options = parser.parse_args()
    with modelkit.load(options.target) as target, modelkit.load(options.draft) as draft:
        print(f"{'':10}{'places':>8}{'coupled':>10}{'rejection':>11}{'most':>8}")
        for name, settings in SETTINGS.items():
            counts = np.zeros(4)
            for prompt in options.prompts:
                for seed in range(options.seeds):
                    text = target.generate(
                        prompt, raw=True, seed=seed, num_predict=options.tokens, **settings
                    )
                    ids = [*target.encode(prompt), *text.ids]
                    start = len(ids) - len(text.ids) - 1
                    own, its = (mx.array(model.logits(ids))[start:-1] for model in (target, draft))
                    counts += _judged(own, its, ids[start:-1], start + 1, seed, settings)
            shares = [f"{100 * count / counts[0]:.1f} %" for count in counts[1:]]
            print(f"{name:10}{counts[0]:>8.0f}{shares[0]:>10}{shares[1]:>11}{shares[2]:>8}")


def _judged(
    own: mx.array, its: mx.array, newest: list[int], first: int, seed: int, settings: dict[str, float]
) -> np.ndarray:
    """Places, drafts that stand coupled and by rejection, and the sum of the odds in common.

    own, its: logits [places, V] of target and draft behind each of `newest`, whose next position is `first`.
    """
    places, size = own.shape
    positions = list(range(first, first + places))
    stand: list[float] = []
    common = mx.array(0.0)
    for how in ("coupled", "rejection"):
        params = SamplingParams(seed=seed, draft_acceptance=how, **settings)  # pyright: ignore
        sampler = Sampler([params] * places)
        drafts, odds = sampler.draft(its[:, None, :size], positions)
        inputs = mx.concatenate([mx.array(newest)[:, None], drafts], axis=1)
        block = mx.broadcast_to(own[:, None], (places, 2, size))
        said = sampler.sample(block, positions, inputs=inputs, guesses=Guesses([1] * places, odds))
        stand.append(float((said[:, :1] == drafts).sum().item()))
        if how == "rejection":
            _, target_odds = sampler.draft(own[:, None], positions)
            pairs = zip(target_odds, odds, strict=True)
            common = sum(
                mx.minimum(mx.exp(a), mx.exp(b)).sum() for a, b in pairs if a is not None and b is not None
            )
    return np.array([places, *stand, float(common.item())])


if __name__ == "__main__":
    main()
