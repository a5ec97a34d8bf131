"""A batch of prompts that an encoder reads is answered as transformers' `generate` answers it."""

from pathlib import Path

import numpy as np
import pytest

from runtime.engine.engine import Engine
from runtime.engine.options import Options
from runtime.engine.request import Request
from runtime.loading.load import load_model
from runtime.models import describe
from runtime.sampling.params import SamplingParams
from tests.support.checkpoints import write_checkpoint
from tests.support.engines import ids_of
from tests.support.parity import Reference, bar

FOLDER = Path(__file__).resolve().parents[2] / "data" / "generated"


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.npz")))
def test_a_batch_is_answered_as_by_transformers(name: str, tmp_path: Path) -> None:
    with np.load(FOLDER / f"{name}.npz") as opened:
        stored = dict(opened)
    reference = Reference(name)
    config = reference.record["config"]
    write_checkpoint(tmp_path, config, reference.record["tensors"])
    start = describe(config).start_id
    assert start == int(stored["start"])
    engine = Engine(
        lambda: load_model(config, [tmp_path / "model.safetensors"]), Options(context_length=64, max_rows=8)
    )
    count = stored["answers"].shape[1]
    prompts = [ids[:length].tolist() for ids, length in zip(stored["ids"], stored["lengths"], strict=True)]
    greedy = SamplingParams(temperature=0)
    streams = [engine.submit(Request((start,), count, greedy, source=tuple(prompt))) for prompt in prompts]
    answers = [ids_of(stream) for stream in streams]
    engine.close()
    for row, answer in enumerate(answers):
        close = np.flatnonzero(stored["margins"][row] < 4 * bar(reference))  # two right computations may part
        sure = int(close[0]) if len(close) else count
        assert sure > count // 2
        assert answer[:sure] == stored["answers"][row, :sure].tolist()
