"""Exports against llama.cpp itself: does it load them, and does it compute and say the same?

    python -m tests.support.llama_cpp_check NAME...     references (else all) as GGUF, logits compared

gguf/NAME is one of tests/data/gguf, compared with what modelkit computes of its checkpoint.

llama.cpp runs through llama-cpp-python, in another process: the interpreter that has it is named by
MODELKIT_LLAMA_CPP (a path such as ~/llama/bin/python). Tests skip where it is not.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import modelkit
from modelkit.errors import ModelkitError
from modelkit.store.store import Store
from runtime.loading.load import load_model
from tests.support.checkpoints import write_checkpoint
from tests.support.gguf_references import GgufReference
from tests.support.gguf_round import exported
from tests.support.parity import Reference, full_logits
from tests.support.tiny import write_tokenizer

VARIABLE = "MODELKIT_LLAMA_CPP"
_BAR = 0.005
"""Of the spread of the logits: llama.cpp looks GELU up in a table of 16-bit floats, which shows as 0.003."""

_KEPT = "gguf/"
_FLASH = ("minimax_m3",)
"""llama.cpp chooses keys for them in its flash attention alone, which rounds to 16 bits."""

_PROGRAM = """
import json, sys
from llama_cpp import Llama
asked = json.load(sys.stdin)
whole = "ids" in asked
size = 64 if whole else 512
if "texts" in asked:
    texts = asked["texts"]
    model = Llama(asked["file"], n_ctx=64, n_ubatch=64, n_threads=1, embedding=True, verbose=asked["loud"])
    ids = [model.tokenize(text.encode(), add_bos=True, special=False) for text in texts]
    json.dump({"ids": ids, "vectors": [model.embed(text) for text in texts]}, sys.stdout)
    sys.exit()
memory = {"type_k": 0, "type_v": 0, "flash_attn": asked.get("flash", False)}  # keys and values as float32
model = Llama(asked["file"], n_ctx=size, n_threads=1, logits_all=whole, verbose=asked["loud"], **memory)
if asked.get("source"):
    import llama_cpp as low

    def batch(ids):
        made = low.llama_batch_init(len(ids), 0, 1)
        made.n_tokens = len(ids)
        for i, one in enumerate(ids):
            made.token[i], made.pos[i], made.logits[i] = one, i, 1
            made.n_seq_id[i], made.seq_id[i][0] = 1, 0
        return made

    assert low.llama_encode(model.ctx, batch(asked["source"])) == 0
    assert low.llama_decode(model.ctx, batch(asked["ids"])) == 0
    rows, count = len(asked["ids"]), model.n_vocab()
    answer = [low.llama_get_logits_ith(model.ctx, i)[:count] for i in range(rows)]
elif whole:
    model.eval(asked["ids"])
    answer = model.scores[: len(asked["ids"])].tolist()
else:
    prompt = model.tokenize(asked["prompt"].encode(), add_bos=True, special=True)
    answer = {"prompt": prompt, "ids": []}
    for token in model.generate(prompt, top_k=1, temp=0.0, repeat_penalty=1.0):
        if token == model.token_eos() or len(answer["ids"]) >= asked["count"]:
            break
        answer["ids"].append(token)
json.dump(answer, sys.stdout)
"""


def interpreter() -> str | None:
    """The Python that has llama-cpp-python; None where the environment names none."""
    return os.environ.get(VARIABLE)


Answers = Mapping[str, Any]


class Failed(Exception):
    """llama.cpp did not take the file; its last words."""


def ask(file: Path, **asked: Any) -> Any:
    """prompt, count: ids of the prompt and of the greedy answer. ids: the logits after each; source: what
    an encoder reads before. texts: ids and vector of each.
    """
    python = interpreter()
    assert python is not None, f"{VARIABLE} names no interpreter"
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", _PROGRAM],
        input=json.dumps({"file": str(file), "loud": True, **asked}),
        capture_output=True, text=True, check=False, env=clean, timeout=300,
    )  # fmt: skip
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "error" in line.lower() or "ASSERT" in line]
        raise Failed((said or [f"ended with {done.returncode}"])[0][-160:])
    return json.loads(done.stdout)


def compare(name: str, folder: Path) -> str:
    """One reference: exported as float32, its logits beside those of transformers."""
    kept = GgufReference(name[len(_KEPT) :]) if name.startswith(_KEPT) else None
    record = kept.record if kept else Reference(name).record
    shapes = record["shapes" if kept else "tensors"]
    write_checkpoint(folder / "model", _without_ids(record["config"]), shapes)
    write_tokenizer(folder / "model", tokens=128)
    recipe = modelkit.Modelfile.parse(f"FROM {folder / 'model'}")
    try:
        modelkit.create(recipe, name="it", home=folder / "home")
        with Store(folder / "home").hold("it") as package:
            notes = exported(package, folder / "it.gguf").notes
    except ModelkitError as error:
        return f"not written: {error.message}"
    answers, source = _computed(folder / "model") if kept else _stored(Reference(name))
    said = f"; notes: {', '.join(notes)}" if notes else ""
    try:
        ids = answers["ids"].ravel().tolist()
        found = np.array(ask(folder / "it.gguf", ids=ids, source=source, flash=name in _FLASH))
    except Failed as error:
        return f"REFUSED by llama.cpp: {error}{said}"
    wanted = answers["logits"].reshape(len(found), -1)
    off = np.abs(found[:, answers["columns"]] - wanted).max() / wanted.std()
    bar = 4 * _BAR if name in _FLASH else _BAR
    return f"off by {off:.1e} of the spread{'' if off < bar else ', WRONG'}{said}"


def _stored(reference: Reference) -> tuple[Answers, list[int]]:
    """What transformers computes, and what an encoder reads before."""
    return reference.answers, [] if reference.source is None else reference.source.ravel().tolist()


def _computed(folder: Path) -> tuple[Answers, list[int]]:
    """The same from modelkit, of one row of ids."""
    ids, config = np.arange(3, 51), json.loads((folder / "config.json").read_text())
    logits = full_logits(load_model(config, sorted(folder.glob("*.safetensors"))), ids)
    return {"ids": ids, "logits": logits, "columns": np.arange(logits.shape[-1])}, []


def _without_ids(config: Mapping[str, Any]) -> dict[str, Any]:
    """Ids of tokens are those of a larger vocabulary. Tables of n-grams go by the end of a text."""
    needed = ("eos_token_id",) if config.get("ple_layer_ids") else ()
    return {
        key: _without_ids(one) if isinstance(one, dict) else one
        for key, one in config.items()
        if key in needed or not key.endswith("_token_id")
    }


if __name__ == "__main__":
    for one in sys.argv[1:] or Reference.names():
        with tempfile.TemporaryDirectory() as place:
            print(f"{one}: {compare(one, Path(place))}", flush=True)
