"""Folders of encoders as they are published: a reference's checkpoint, a WordPiece or Unigram tokenizer that
frames texts, sentence-transformers' files.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.checkpoints import random_state
from tests.support.embedding_folders import FLAGS, write_modules
from tests.support.parity import Reference

WORDS = ("once", "upon", "a", "time", "there", "was", "rain", "cat", "##s", "tea", "small", "that", "liked")
MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
CLS, SEP = 2, 3


def write_encoder(
    folder: Path,
    name: str = "bert",
    *,
    pool: str | None = "mean",
    prefix: str = "",
    beside: Mapping[str, np.ndarray] | None = None,
    **changes: Any,
) -> Path:
    """prefix: before every tensor's name. beside: tensors that stand there too. changes: to its config."""
    from safetensors.numpy import save_file

    record = Reference.called(name).record
    folder.mkdir(parents=True, exist_ok=True)
    config = {**record["config"], **changes}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    state = {prefix + one: x for one, x in random_state(record["tensors"]).items()}
    save_file({**state, **(beside or {})}, folder / "model.safetensors", {"format": "pt"})
    write_words(folder)
    if pool is not None:
        write_modules(folder, {FLAGS[pool]: True})
    return folder


def write_words(folder: Path) -> None:
    """As BERT's files have it, cut and padded by themselves, which must not act."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {piece: place for place, piece in enumerate((*MARKS, *WORDS))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    tokenizer.add_special_tokens([*MARKS])
    tokenizer.enable_truncation(max_length=6)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(folder / "tokenizer.json"))
    said = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(said), encoding="utf-8")
