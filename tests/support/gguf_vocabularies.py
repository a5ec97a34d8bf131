"""Metadata of small vocabularies, and what llama.cpp says of large ones.

    python -m tests.support.gguf_vocabularies FOLDER

compares every `ggml-vocab-*.gguf` of a folder with its `.inp` and `.out` (llama.cpp's own `models` folder has
them). The tests do the same where MODELKIT_GGUF_VOCABULARIES names such a folder.
"""

import heapq
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from modelkit.source.gguf.file import read_gguf
from modelkit.source.gguf.vocabulary.files import TokenizerFiles, tokenizer_files
from modelkit.tokenizer.load import load_tokenizer
from modelkit.tokenizer.tokenizer import Tokenizer

FOLDER = "MODELKIT_GGUF_VOCABULARIES"
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def byte_letters() -> list[str]:
    """The letter that stands for each byte in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]


def bytes_metadata(
    pre: str | None = "gpt-2",
    *,
    merges: Sequence[str] = (),
    special: Sequence[str] = ("<|endoftext|>",),
    **more: Any,
) -> dict[str, Any]:
    """A byte-level vocabulary: 256 letters, what `merges` make, and special tokens behind."""
    joined = [merge.replace(" ", "") for merge in merges]
    pieces = [*byte_letters(), *joined, *special]
    named = {} if pre is None else {"tokenizer.ggml.pre": pre}
    return {
        "tokenizer.ggml.model": "gpt2",
        **named,
        "tokenizer.ggml.tokens": tuple(pieces),
        "tokenizer.ggml.token_type": (NORMAL,) * (256 + len(joined)) + (CONTROL,) * len(special),
        "tokenizer.ggml.merges": tuple(merges),
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def joined_metadata(pieces: Mapping[str, float], **more: Any) -> dict[str, Any]:
    """A SentencePiece vocabulary: <unk>, <s>, </s>, 256 bytes, then these pieces with their scores."""
    first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": (*first, *pieces),
        "tokenizer.ggml.token_type": tuple(types),
        "tokenizer.ggml.scores": (*[0.0] * len(first), *pieces.values()),
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def made(metadata: Mapping[str, Any], rows: int | None = None) -> TokenizerFiles:
    count = len(metadata.get("tokenizer.ggml.tokens", ()))
    return tokenizer_files(metadata, rows=count if rows is None else rows, label="m.gguf")


def loaded(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer as the product loads it, every check included."""
    with tempfile.TemporaryDirectory() as folder:
        paths: dict[str, Path] = {}
        for name, content in made(metadata).files.items():
            paths[name] = Path(folder, name)
            paths[name].write_bytes(content)
        return load_tokenizer(paths)


def llama_cpp_joins(text: str, metadata: Mapping[str, Any]) -> list[int]:
    """llama.cpp's loop for SentencePiece vocabularies, word by word: the neighbours whose join is the piece
    with the best score are joined, the leftmost first, until no join is a piece. llama-vocab.cpp (MIT)."""
    ids = {piece: one for one, piece in enumerate(metadata["tokenizer.ggml.tokens"])}
    scores = metadata["tokenizer.ggml.scores"]
    start = "\u2581" if metadata.get("tokenizer.ggml.add_space_prefix", True) else ""
    symbols = list(start + text.replace(" ", "\u2581"))
    left, right = list(range(-1, len(symbols) - 1)), [*range(1, len(symbols)), -1]
    heap: list[tuple[float, int, int, int]] = []

    def push(one: int, other: int) -> None:
        joined = ids.get(symbols[one] + symbols[other]) if one >= 0 and other >= 0 else None
        if joined is not None:
            size = len(symbols[one]) + len(symbols[other])
            heapq.heappush(heap, (-scores[joined], one, other, size))

    for at in range(len(symbols) - 1):
        push(at, at + 1)
    while heap:
        _, one, other, size = heapq.heappop(heap)
        if not symbols[one] or not symbols[other] or len(symbols[one]) + len(symbols[other]) != size:
            continue
        symbols[one], symbols[other] = symbols[one] + symbols[other], ""
        right[one] = right[other]
        if right[other] >= 0:
            left[right[other]] = one
        push(left[one], one)
        push(one, right[one])
    return [one for symbol in symbols if symbol for one in _ids_of(symbol, ids)]


def _ids_of(symbol: str, ids: Mapping[str, int]) -> list[int]:
    return [ids[symbol]] if symbol in ids else [ids[f"<0x{byte:02X}>"] for byte in symbol.encode()]


def vectors(path: Path) -> Iterator[tuple[str, list[int]]]:
    """(text, ids) as llama.cpp's tests have them beside a vocabulary."""
    texts = Path(f"{path}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text(encoding="utf-8").split("\n")
    for text, line in zip(texts, lines[: len(texts)], strict=True):
        yield text, [int(one) for one in line.split()]


def wrong_vectors(path: Path) -> tuple[int, list[tuple[str, list[int], list[int]]]]:
    """(how many there are, those that differ: text, ours, theirs)."""
    tokenizer = loaded(read_gguf(path).metadata)
    pairs = list(vectors(path))
    found = [(text, tokenizer.encode(text, add_special=False), theirs) for text, theirs in pairs]
    return len(pairs), [each for each in found if each[1] != each[2]]


if __name__ == "__main__":
    total = 0
    for one in sorted(Path(sys.argv[1]).glob("ggml-vocab-*.gguf")):
        if Path(f"{one}.inp").exists():
            count, wrong = wrong_vectors(one)
            total += count - len(wrong)
            print(f"{one.name}: {count - len(wrong)} of {count}", *wrong[:2], flush=True)
    print(f"{total} agree")
