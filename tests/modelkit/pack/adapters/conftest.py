"""The small llama that adapters are packaged with."""

from pathlib import Path

import pytest

from tests.support.checkpoints import write_checkpoint
from tests.support.parity import Reference
from tests.support.tiny import write_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    record = Reference("llama").record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    write_tokenizer(write_checkpoint(tmp_path / "model", config, record["tensors"]), tokens=128)
    return tmp_path
