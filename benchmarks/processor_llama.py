"""One process of llama.cpp for benchmarks/processor.py: PYTHON processor_llama.py FILE JOBS THREADS

Raw llama_decode and an argmax over its logits: no sampler, no text. Runs where llama-cpp-python is installed,
which modelkit need not be.
"""

import ctypes
import json
import random
import sys
import time

STARTED = time.perf_counter()

import llama_cpp.llama_cpp as lc  # noqa: E402
import numpy as np  # noqa: E402
from peak_memory import peak_mb  # noqa: E402

DECODED, BEHIND, ROWS_DECODED, VERIFIED = 128, 48, 48, 128


class Llama:
    def __init__(self, file: str, threads: int, packed_keys: bool) -> None:
        self._quiet = lc.llama_log_callback(lambda _level, _text, _data: None)
        lc.llama_log_set(self._quiet, ctypes.c_void_p(0))
        lc.llama_backend_init()
        self._model = lc.llama_model_load_from_file(file.encode(), lc.llama_model_default_params())
        wanted = lc.llama_context_default_params()
        wanted.n_ctx, wanted.n_batch, wanted.n_ubatch, wanted.n_seq_max = 4608, 512, 512, 16
        wanted.kv_unified = True
        wanted.n_threads = wanted.n_threads_batch = threads
        if packed_keys:
            wanted.type_k = wanted.type_v = lc.GGML_TYPE_Q8_0
            wanted.flash_attn_type = 1
        self._vocabulary = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(self._model))
        self._context = lc.llama_init_from_model(self._model, wanted)
        assert self._context
        self._memory = lc.llama_get_memory(self._context)

    def clear(self) -> None:
        lc.llama_memory_clear(self._memory, True)

    def feed(self, placed: list[tuple[int, int, int]], wanted: set[int]) -> list[int]:
        """(token, position, sequence) each; the likeliest next token behind those whose place is wanted."""
        batch = lc.llama_batch_init(len(placed), 0, 1)
        batch.n_tokens = len(placed)
        for i, (token, position, sequence) in enumerate(placed):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = i in wanted
        assert lc.llama_decode(self._context, batch) == 0
        lc.llama_batch_free(batch)
        rows = [lc.llama_get_logits_ith(self._context, i) for i in sorted(wanted)]
        return [int(np.ctypeslib.as_array(row, (self._vocabulary,)).argmax()) for row in rows]

    def read(self, ids: list[int], sequence: int = 0) -> int:
        for start in range(0, len(ids), 512):
            part = ids[start : start + 512]
            token = self.feed(
                [(token, start + i, sequence) for i, token in enumerate(part)], {len(part) - 1}
            )[0]
        return token


def prompt(length: int, seed: int) -> list[int]:
    numbers = random.Random(f"{length} {seed}")
    return [numbers.randrange(5, 240) for _ in range(length)]


def decode(llama: Llama, length: int, count: int, seed: int) -> float:
    llama.clear()
    token = llama.read(prompt(length, seed))
    started = time.perf_counter()
    for turn in range(count - 1):
        token = llama.feed([(token, length + turn, 0)], {0})[0]
    return (count - 1) / (time.perf_counter() - started)


def prefill(llama: Llama, length: int, seed: int) -> float:
    llama.clear()
    started = time.perf_counter()
    llama.read(prompt(length, seed))
    return length / (time.perf_counter() - started)


def rows(llama: Llama, count: int) -> float:
    llama.clear()
    tokens = [llama.read(prompt(32, 100), 0)]
    started = time.perf_counter()
    tokens += [llama.read(prompt(32, 100 + row), row) for row in range(1, count)]
    for turn in range(ROWS_DECODED - 1):
        placed = [(token, 32 + turn, row) for row, token in enumerate(tokens)]
        tokens = llama.feed(placed, set(range(count)))
    return count * (ROWS_DECODED - 1) / (time.perf_counter() - started)


def verify(llama: Llama, count: int) -> float:
    """What a step with `count` tokens takes beside one with a single token, the logits of all asked for."""
    ids = prompt(VERIFIED, 6)

    def step_s(width: int) -> float:
        llama.clear()
        started = time.perf_counter()
        for start in range(0, VERIFIED, width):
            part = ids[start : start + width]
            llama.feed([(token, start + i, 0) for i, token in enumerate(part)], set(range(width)))
        return (time.perf_counter() - started) / (VERIFIED / width)

    return min(step_s(count) for _ in range(3)) / min(step_s(1) for _ in range(3))


def run(llama: Llama, job: str) -> float:
    kind, _, number = job.partition(" ")
    if kind == "decode":
        return max(decode(llama, 32, DECODED, seed) for seed in range(2))
    if kind == "prefill":
        return max(prefill(llama, int(number), seed) for seed in range(2))
    if kind == "behind":
        return decode(llama, int(number), BEHIND, 5)
    if kind == "verify":
        return verify(llama, int(number))
    return rows(llama, int(number))


def main() -> None:
    file, jobs, threads = sys.argv[1:]
    said: dict[str, float] = {}
    llama = Llama(file, int(threads), "kv q8" in jobs)
    llama.read(prompt(8, 0))
    said["first"] = time.perf_counter() - STARTED
    said["load peak"] = peak_mb()
    for job in json.loads(jobs):
        if not job.startswith("kv "):
            said[job] = run(llama, job)
    said["peak"] = peak_mb()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
