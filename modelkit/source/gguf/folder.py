"""Which GGUF file of a folder is meant: the only one, or the only set of shards, that is a model.

Repositories hold one model in many quantizations side by side; choosing one of them is the user's business.
"""

import re
from pathlib import Path

from modelkit.errors import UnsupportedSource
from modelkit.source.sniff import is_cut, weights_kind
from modelkit.source.tree import Files, open_regular
from runtime.quoting import shown

_LATER_SHARD = re.compile(r".+-(?!00001)\d{5}-of-\d{5}\.gguf", re.ASCII | re.IGNORECASE)
_BESIDE = (
    re.compile(  # llama.cpp's names of drafts begin so (`mtp-x.gguf`); in the middle they are a model's own
        r"mmproj|imatrix|(?:^|[-_.])(?:lora|adapter)(?=[-_.])|^(?:mtp|eagle3|dflash|dspark)-", re.IGNORECASE
    )
)
_SHOWN = 12


def is_gguf(name: str) -> bool:
    return name.lower().endswith(".gguf")


def is_later_shard(name: str) -> bool:
    """Of several files of one model, is it another than the first?"""
    return _LATER_SHARD.fullmatch(name) is not None


def is_gguf_file(path: Path) -> bool:
    """By its name, or by its first bytes where that says something else, or nothing, as of Ollama's blobs."""
    if is_gguf(path.name) or path.suffix == ".safetensors" or is_cut(path.name) or not path.is_file():
        return is_gguf(path.name)
    with open_regular(path, str(path)) as file:
        return file.read(4) == b"GGUF"


def is_beside(name: str) -> bool:
    """Is a GGUF file, by its name, none of the models of its folder, but lies beside them: a projector, an
    importance matrix, an adapter, a draft?
    """
    return _BESIDE.search(name.rpartition("/")[2]) is not None


def gguf_in(files: Files, folder: Path) -> Path | None:
    """The GGUF model of a folder without safetensors weights; None where there is none, or weights of that
    kind. Raises UnsupportedSource for several.
    """
    if any(name.endswith(".safetensors") for name in files):
        return None
    every = [name for name in files if is_gguf(name) and not is_later_shard(name)]
    every = every or [
        name
        for name, path in files.items()
        if weights_kind(name) and not is_gguf(name) and is_gguf_file(path)
    ]
    models = [name for name in every if not is_beside(name)] or every
    if len(models) > 1:
        listed = ", ".join(map(shown, models[:_SHOWN]))
        more = f" and {len(models) - _SHOWN} more" if len(models) > _SHOWN else ""
        raise UnsupportedSource(
            f"{folder} holds {len(models)} GGUF models: {listed}{more}",
            hint=f"Name one of them, such as {folder}/{shown(models[0])}.",
        )
    return files[models[0]] if models else None
