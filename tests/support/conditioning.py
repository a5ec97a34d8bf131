"""How far a reference's own answers move when its weights move by their last bit.

    python -m tests.support.conditioning [ENTRY ...]

Run by hand, where torch is installed: measures the stored references and writes `sensitivity` into their
records; make_references does the same for those it makes. parity.bar makes of it how far two right
computations may lie apart: products summed in another order round differently at every step, as moved weights
do.
"""

import json
import sys
from typing import Any

import numpy as np
import torch

DRAWS = 16
MOST = 2e-4  # of the spread: a network that moves more than this tells a wrong formula from a right one badly


def sensitivity(model: Any, ids: np.ndarray, columns: np.ndarray, logits: np.ndarray, std: float) -> float:
    """The largest distance from `logits` [T, columns], in units of `std`, of any of DRAWS runs of `model`
    in each of which every float32 weight is one of the two neighbours of itself.

    The distance is from the stored answers, so that what threads and their number change in the reference
    implementation counts too. The model is left as it was. ValueError above MOST.
    """
    own = {name: weight for name, weight in model.state_dict().items() if weight.dtype == torch.float32}
    before = {name: weight.clone() for name, weight in own.items()}
    far = 0.0
    with torch.no_grad():
        for draw in range(DRAWS):
            generator = torch.Generator().manual_seed(draw)
            for name, weight in own.items():
                up = torch.randint(0, 2, weight.shape, generator=generator).bool()
                towards = torch.where(up, torch.inf, -torch.inf)
                weight.copy_(torch.nextafter(before[name], towards))
            moved = model(torch.from_numpy(ids.astype(np.int64))[None]).logits[0].numpy()[:, columns]
            far = max(far, float(np.abs(moved - logits).max() / std))
        for name, weight in own.items():
            weight.copy_(before[name])
    if far > MOST:
        raise ValueError(f"the answers move by {far:.1e} when the weights move by their last bit: too wild")
    return float(f"{far:.2g}")


def main(names: list[str]) -> None:
    from tests.support.make_references import FOLDER, _reference_model, entries

    for name, (model_type, overrides) in entries().items():
        path = FOLDER / f"{name}.json"
        if (names and name not in names) or not path.is_file():
            continue
        with np.load(FOLDER / f"{name}.npz") as its:
            ids, columns, logits, std = its["ids"], its["columns"], its["logits"], float(its["std"])
        record = json.loads(path.read_text(encoding="utf-8"))
        model = _reference_model(model_type, overrides)
        record["sensitivity"] = sensitivity(model, ids, columns, logits, std)
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: {record['sensitivity']:.1e}")


if __name__ == "__main__":
    main(sys.argv[1:])
