"""Files that something has happened to: every one is read or refused, in bounded time and memory."""

import random
import struct
import time
import tracemalloc
from pathlib import Path

import pytest

from modelkit.errors import ModelkitError, SourceError
from modelkit.modelfile import Modelfile
from modelkit.pack.build import build
from modelkit.source.gguf.checkpoint import read_checkpoint
from modelkit.source.gguf.file import read_gguf
from modelkit.store.name import Name
from modelkit.store.store import Store
from tests.support import gguf_llama

WHOLE = gguf_llama.llama(["q4_k", "q4_0", "f16"])
_NUMBERS = (0, 1, 7, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def spoiled(rng: random.Random, header_bytes: int) -> bytes:
    """A file with one to four places of its header changed, cut or drawn out."""
    content = bytearray(WHOLE)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(min(header_bytes, len(content)))
        match rng.randrange(6):
            case 0:
                content[at] ^= 1 << rng.randrange(8)
            case 1:
                content[at : at + 8] = struct.pack("<Q", rng.choice(_NUMBERS))
            case 2:
                content[at : at + 4] = struct.pack("<I", rng.choice(_NUMBERS) & 0xFFFFFFFF)
            case 3:
                del content[at : at + rng.randint(1, 40)]
            case 4:
                content[at:at] = rng.randbytes(rng.randint(1, 40))
            case _:
                content[at : at + rng.randint(1, 16)] = rng.randbytes(rng.randint(1, 16))
    return bytes(content[: rng.randrange(len(content))] if rng.random() < 0.1 else content)


def survives(path: Path, content: bytes) -> bool:
    """Read as a model, or refused as one, within ten seconds and 32 MB beyond the file."""
    path.write_bytes(content)
    tracemalloc.start()
    began_s = time.thread_time()
    try:
        read_checkpoint(path, "m")
        return True
    except SourceError:
        return False
    finally:
        assert time.thread_time() - began_s < 10
        assert tracemalloc.get_traced_memory()[1] < 32_000_000
        tracemalloc.stop()


def header_size(path: Path) -> int:
    path.write_bytes(WHOLE)
    return min(tensor.start for tensor in read_gguf(path).tensors.values())


def test_spoiled_headers_are_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    size, rng = header_size(path), random.Random(0)
    read = sum(survives(path, spoiled(rng, size)) for _ in range(60))
    assert 0 < read < 60


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_spoiled_headers_at_length(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    size, rng = header_size(path), random.Random(1000 + seed)
    for _ in range(1000):
        survives(path, spoiled(rng, size))


@pytest.mark.slow
def test_spoiled_files_make_packages_or_none(tmp_path: Path) -> None:
    """All the way to a package: what is written is whole, or nothing is."""
    path = tmp_path / "m.gguf"
    size, rng, store = header_size(path), random.Random(7), Store(tmp_path / "home")
    recipe = Modelfile.parse("FROM ./m.gguf\n").recipe(tmp_path)
    for number in range(200):
        path.write_bytes(spoiled(rng, size))
        before = len(store.packages())
        try:
            build(recipe, Name.parse(f"m{number}"), store)
        except ModelkitError:
            assert len(store.packages()) == before
