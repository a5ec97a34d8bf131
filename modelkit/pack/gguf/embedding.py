"""What a package says of embeddings, in a GGUF file: how a text's tokens become one vector, and the two
Dense modules for which one architecture has a place.

llama.cpp knows three ways of pooling, the mean of all tokens and the first or the last one. What it computes
otherwise is refused for an encoder, whose vectors would be others. A file cannot say what stands before texts
and where they are cut, which is told. Who asks for vectors brings them to length 1, here as there.
"""

from collections.abc import Mapping
from typing import Any

from modelkit.errors import UnsupportedSource
from modelkit.pack.dense import DenseFile
from modelkit.pack.gguf.tensors import Part, Stored
from modelkit.pack.planning.slabs import whole
from modelkit.pack.pooling import FILES, Pooling, read_pooling
from modelkit.pack.sources import Source
from modelkit.source.gguf.architectures import Described, Origin, Run
from modelkit.source.gguf.modules import DENSE, POOLINGS
from modelkit.source.inventory import WeightFile
from modelkit.source.tree import MODULE_WEIGHTS
from runtime.models import describe
from runtime.quoting import shown
from runtime.records import dataclass

_POOLS = {"mean": "mean", "cls": "first", "lasttoken": "last"}
_NUMBERS = {_POOLS[word]: number for number, word in POOLINGS.items() if word is not None}


@dataclass(frozen=True, slots=True)
class Embedding:
    """What a file says of embeddings besides its model."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, Stored]
    """Weights of Dense modules, under names of their own."""
    origins: Mapping[str, Origin]
    """The file's tensors that are made of them."""
    files: tuple[WeightFile, ...]
    """Where they lie."""
    notes: tuple[str, ...]


NONE = Embedding({}, {}, {}, (), ())


def embedding(source: Source, described: Described, label: str) -> Embedding:
    """described: as a GGUF file. Raises UnsupportedSource for a way of making vectors that it cannot hold."""
    inventory = source.inventory
    if not described.looks_ahead and not any(name in inventory.files for name in FILES):
        return NONE
    pooling = read_pooling(inventory.files, describe(inventory.config))
    number = _NUMBERS.get(pooling.pool) if pooling.problem is None else None
    if number is None:
        why = pooling.problem or f"its vectors are the {pooling.description.partition(',')[0]}"
        if described.looks_ahead:
            raise UnsupportedSource(f"{label}: {why}, which a GGUF file cannot say")
        return Embedding({}, {}, {}, (), (f"how embeddings are made is left out: {why}",))
    made = _dense(pooling.dense, described, label)
    metadata = {f"{described.architecture}.pooling_type": number, **made.metadata}
    return Embedding(metadata, made.tensors, made.origins, made.files, tuple(_unsaid(pooling)))


def _dense(modules: tuple[DenseFile, ...], described: Described, label: str) -> Embedding:
    if not modules:
        return NONE
    folders = " and ".join(shown(one.folder) for one in modules)
    if not described.dense:
        raise UnsupportedSource(
            f"{label}: vectors pass through {folders}, and a GGUF file of a {described.architecture} model "
            "has no place for Dense modules"
        )
    odd = next((one for one in modules if one.bias is not None or one.activation != "identity"), None)
    if len(modules) != len(DENSE) or odd is not None or modules[-1].outputs != modules[0].inputs:
        raise UnsupportedSource(
            f"{label}: vectors pass through {folders}; llama.cpp computes two Dense modules without bias and "
            "activation, the second of which gives as many elements as enter the first"
        )
    metadata: dict[str, Any] = {}
    tensors: dict[str, Stored] = {}
    origins: dict[str, Origin] = {}
    files: list[WeightFile] = []
    for theirs, one in zip(DENSE, modules, strict=True):
        metadata[f"{described.architecture}.{theirs}_feat_in"] = one.inputs
        metadata[f"{described.architecture}.{theirs}_feat_out"] = one.outputs
        own, name = f"{one.folder}/{MODULE_WEIGHTS}", f"{theirs}.weight"
        part = Part(one.weight.dtype, one.weight.shape, (whole(one.weight),))
        tensors[own] = Stored(own, one.weight.shape, part, None)
        origins[name] = Origin(name, one.weight.shape, (Run(own, one.outputs, 0, one.outputs),))
        files.append(WeightFile(own, one.weight.path, one.header))
    return Embedding(metadata, tensors, origins, tuple(files), ())


def _unsaid(pooling: Pooling) -> list[str]:
    found: list[str] = []
    if pooling.prefix or pooling.prompts:
        texts = ", ".join(
            shown(text) for text in dict.fromkeys((pooling.prefix, *pooling.prompts.values())) if text
        )
        found.append(f"what stands before texts has no place in a GGUF file: {texts}")
        if pooling.alone:
            found.append("it is left out of vectors here, which a GGUF file cannot say either")
    if pooling.most_tokens is not None:
        found.append(f"texts are cut at {pooling.most_tokens:,} tokens here, which a GGUF file cannot say")
    if pooling.lower:
        found.append("texts are put in small letters first, which a GGUF file cannot say")
    return found
