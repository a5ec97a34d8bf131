"""What transformers' `generate` answers to a batch of prompts that an encoder reads: tests/data/generated.

    python -m tests.support.make_generated

Run by hand, where torch is installed. For entries of tests/data/references whose prompts an encoder reads:
prompts of different lengths in one padded batch, answered greedily. With each token goes how far the next
likeliest was behind, in standard deviations of the logits.
"""

from pathlib import Path

import numpy as np
import torch

from tests.support.make_references import _reference_model, entries

FOLDER = Path(__file__).resolve().parents[1] / "data" / "generated"
ENTRIES = ("mt5", "t5", "t5_v1_1", "t5gemma_biases", "umt5")
LENGTHS = (3, 17, 40)
TOKENS = 24


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ENTRIES:
        model = _reference_model(*entries()[name])
        del model.forward  # which reads a source of its own
        rng = np.random.default_rng(23)
        ids = np.zeros((len(LENGTHS), max(LENGTHS)), np.int64)
        mask = np.zeros_like(ids)
        for row, length in enumerate(LENGTHS):
            ids[row, :length] = rng.integers(3, 160, length)
            mask[row, :length] = 1
        model.generation_config.eos_token_id = None
        with torch.no_grad():
            out = model.generate(
                input_ids=torch.from_numpy(ids),
                attention_mask=torch.from_numpy(mask),
                max_new_tokens=TOKENS,
                do_sample=False,
                use_cache=False,  # the classes fail with one where the two stacks differ in depth
                output_logits=True,
                return_dict_in_generate=True,
            )
        logits = torch.stack(out.logits, dim=1)
        best = torch.topk(logits, 2).values
        np.savez_compressed(
            FOLDER / f"{name}.npz",
            ids=ids.astype(np.int16),
            lengths=np.array(LENGTHS, np.int16),
            start=np.int16(int(out.sequences[0, 0])),
            answers=out.sequences[:, 1:].numpy().astype(np.int16),
            margins=((best[..., 0] - best[..., 1]) / logits.std()).numpy().astype(np.float32),
        )
        print(name, out.sequences[:, :9].tolist(), flush=True)


if __name__ == "__main__":
    main()
