"""A file that has nothing but a model's draft head (`mtp-*.gguf`), and the file of that model: one model.

The converter writes such a file with `--mtp`, and the model without its head with `--no-mtp`. Both say the
same of the model, but for the number of blocks; embedding, last norm and output of the head's file are the
model's own.
"""

import re
from dataclasses import replace

from modelkit.errors import SourceError
from modelkit.source.gguf.architectures import ROWS
from modelkit.source.gguf.file import GgufFile
from modelkit.source.gguf.lone_head import head_alone
from runtime.quoting import shown

_BLOCK = re.compile(r"blk\.(\d{1,5})\.", re.ASCII)
_COUNTED = ("block_count", "nextn_predict_layers")
_TOKENS = "tokenizer.ggml.tokens"


def refuse_alone(file: GgufFile) -> None:
    """Raise HeadAlone for a file that has the blocks of a head and none of the model's."""
    name, heads, layers = _counts(file)
    blocks = _blocks(file)
    known = any(row.name == name and row.head for row in ROWS)
    if known and heads and blocks and min(blocks) >= layers:
        raise head_alone(file.path, file.label, layers)


def with_head(model: GgufFile, head: GgufFile) -> GgufFile:
    """The model with that head. Raises SourceError for one of another model."""
    name, heads, layers = _counts(model)
    other, _, under = _counts(head)
    if other != name or under != layers:
        raise SourceError(
            f"{head.label} is the head of a model of {shown(other)} with {under} layers, and {model.label} "
            f"is one of {shown(name)} with {layers}"
        )
    if heads and max(_blocks(model), default=0) >= layers:
        raise SourceError(f"{model.label} has a draft head already", hint="Leave DRAFT out.")
    _refuse_others(model, head, name)
    stated = {key: head.metadata[key] for key in head.metadata if key.startswith(f"{name}.")}
    added = {key: tensor for key, tensor in head.tensors.items() if _block(key) >= under}
    return replace(
        model,
        metadata=model.metadata.having(stated),
        tensors={**model.tensors, **added},
        parts=(*model.parts, *head.parts),
        notes=(*model.notes, *head.notes),
    )


def _refuse_others(model: GgufFile, head: GgufFile, name: str) -> None:
    """Raise SourceError where the two do not speak of one model."""
    both = [key for key in head.metadata if key.startswith(f"{name}.") and key in model.metadata]
    if _TOKENS in model.metadata and _TOKENS in head.metadata:
        both.append(_TOKENS)
    for key in both:
        listed = isinstance(head.metadata[key], tuple) and key != _TOKENS  # with an entry for each block
        if (
            not listed
            and key.rpartition(".")[2] not in _COUNTED
            and head.metadata[key] != model.metadata[key]
        ):
            raise SourceError(
                f"{head.label} is the head of another model than {model.label}: they differ in `{shown(key)}`"
            )


def _counts(file: GgufFile) -> tuple[str, int, int]:
    """The architecture; blocks of heads, and of the model without them."""
    name = str(file.metadata.get("general.architecture"))
    blocks, heads = (file.metadata.get(f"{name}.{key}", 0) for key in _COUNTED)
    if type(blocks) is not int or type(heads) is not int:
        return name, 0, 0  # which reading the architecture refuses
    return name, heads, blocks - heads


def _blocks(file: GgufFile) -> list[int]:
    return [block for block in map(_block, file.tensors) if block >= 0]


def _block(name: str) -> int:
    """The block that a tensor belongs to; -1: none."""
    found = _BLOCK.match(name)
    return int(found[1]) if found else -1
