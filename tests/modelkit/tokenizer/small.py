"""Small tokenizer.json documents, each made anew so that a test may spoil its own."""

import json
from pathlib import Path
from typing import Any

from modelkit.tokenizer import Tokenizer, load_tokenizer


def byte_level(**parts: Any) -> dict[str, Any]:
    """GPT-2's manner, with the letters and a merge; `parts` replace parts of the document."""
    pieces = ["<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz", "Ġ", "ab"]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added("<s>", 0), added("</s>", 1)],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {piece: n for n, piece in enumerate(pieces)},
                  "merges": [["a", "b"]]},
    } | parts  # fmt: skip


def added(content: str, one: int, *, special: bool = True) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": one, "content": content, **flags, "special": special}


def template(*, before: str = "<s>", ids: tuple[int, ...] = (0,), times: int = 1) -> dict[str, Any]:
    """A TemplateProcessing that writes `before` in front."""
    token = {"SpecialToken": {"id": before, "type_id": 0}}
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [*[token] * times, sequence],
        "pair": [sequence, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {before: {"id": before, "ids": list(ids), "tokens": [before] * len(ids)}},
    }


def write(folder: Path, **contents: Any) -> dict[str, Path]:
    """Write files, `tokenizer={...}` as tokenizer.json; returns them as `load_tokenizer` takes them."""
    files: dict[str, Path] = {}
    for name, content in contents.items():
        path = folder / f"{name}.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        files[path.name] = path
    return files


def folder_files(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in folder.iterdir() if path.is_file()}


def load(folder: Path, *, tokenizer: Any = None, **others: Any) -> Tokenizer:
    """The tokenizer of such a folder; without another one a byte-level one."""
    return load_tokenizer(write(folder, tokenizer=tokenizer or byte_level(), **others))
