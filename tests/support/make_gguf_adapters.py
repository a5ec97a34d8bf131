"""Convert PEFT adapters with llama.cpp's own script, for tests/data/adapters/gguf.

    python -m tests.support.make_gguf_adapters FOLDER_OF_LLAMA_CPP

Run by hand, where its convert_lora_to_gguf.py runs. The numbers are those of `peft_folders.pair_for`.
"""

import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.adapter_references import FOLDER
from tests.support.checkpoints import write_checkpoint
from tests.support.parity import Reference
from tests.support.peft_folders import gguf_case, write_peft

CASES = ("llama", "phi3_window", "qwen2", "gemma2", "granite")


def main(llama_cpp: Path) -> None:
    (FOLDER / "gguf").mkdir(parents=True, exist_ok=True)
    for name in CASES:
        record = Reference(name).record
        with tempfile.TemporaryDirectory() as scratch:
            base = write_checkpoint(Path(scratch, "base"), record["config"], {})
            lora = write_peft(Path(scratch, "lora"), gguf_case(record["tensors"]), target_modules=["q_proj"])
            made = Path(scratch, "made.gguf")
            words = ["--base", str(base), "--outfile", str(made), "--outtype", "f32", str(lora)]
            subprocess.run([sys.executable, str(llama_cpp / "convert_lora_to_gguf.py"), *words], check=True)
            packed = gzip.compress(made.read_bytes(), mtime=0)
            (FOLDER / "gguf" / f"{name}.gguf.gz").write_bytes(packed)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
