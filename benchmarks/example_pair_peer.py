"""mlx-lm in benchmarks/example_pair.py: the same questions, plainly and with its speculative decoding.

Arguments: the folders of target and draft. Reads one conversation per line from standard input, as JSON, and
writes {"plain", "drafted"}: for each the ids of the answer and the seconds from its first token to its last.
Weights are held in float32, the type a processor is fast at. Runs in any Python that can import mlx-lm.
"""

import json
import sys
import time
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm import load, stream_generate

MOST_TOKENS = 300


def in_float32(folder: str) -> tuple[Any, Any]:
    model, tokenizer = load(folder)[:2]
    model.update(tree_map(lambda w: w.astype(mx.float32), model.parameters()))
    mx.eval(model.parameters())
    return model, tokenizer


def answer(model: Any, tokenizer: Any, prompt: list[int], draft: Any) -> dict[str, Any]:
    ids, first = list[int](), 0.0
    for part in stream_generate(model, tokenizer, prompt, max_tokens=MOST_TOKENS, draft_model=draft):
        first = first or time.perf_counter()
        ids += [] if part.finish_reason == "stop" else [part.token]
    return {"ids": ids, "seconds": time.perf_counter() - first}


def main() -> None:
    model, tokenizer = in_float32(sys.argv[1])
    draft, _ = in_float32(sys.argv[2])
    for line in sys.stdin:
        prompt = tokenizer.apply_chat_template(
            json.loads(line), add_generation_prompt=True, return_dict=False
        )
        done = {
            "plain": answer(model, tokenizer, prompt, None),
            "drafted": answer(model, tokenizer, prompt, draft),
        }
        print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
