"""Adapters in GGUF: `X.lora_a` and `X.lora_b` for llama.cpp's tensor X, alpha in the metadata.

The table of architectures says what X is in a checkpoint and how its rows moved
(`source.gguf.architectures`); a pair goes back the same way. llama.cpp's matrices have their outputs first,
and so have pairs here: what a checkpoint turns over is left as it is. Alpha 0 is scale 1, as in llama.cpp.
Norms that were trained are there whole. `--outtype q8_0` makes blocks of halves whose rows divide into them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from modelkit.errors import SourceError, UnsupportedSource
from modelkit.source.adapters.value import (
    Q8_0,
    AdapterSource,
    Factor,
    GgufOrigin,
    Pair,
    check_pair,
    refuse,
    refuse_activated,
)
from modelkit.source.gguf.architectures import Origin, halves, read_adapter
from modelkit.source.gguf.architectures.changes import Turned
from modelkit.source.gguf.architectures.moves import meant_shape
from modelkit.source.gguf.architectures.pairs import EMBEDDING, PREFIX, TASK
from modelkit.source.gguf.header import GgufTensor, read_gguf_header
from modelkit.source.inventory import WeightFile
from modelkit.source.safetensors import Header
from modelkit.source.tensor import TensorInfo
from runtime.config.text import text_config
from runtime.quoting import quoted, shown

_ACTIVATES = "adapter.alora.invocation_tokens"
_TYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "q8_0": Q8_0}


def read_gguf_adapter(path: Path, config: Mapping[str, Any] | None, label: str) -> AdapterSource:
    """config: the base's. Raises SourceError and its kinds, naming what is wrong."""
    if config is None:
        raise SourceError(f"{label} is a GGUF adapter, which is read together with its base")
    header = read_gguf_header(path, label)
    tensors = {name: _stored(tensor, label) for name, tensor in header.tensors.items()}
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    if header.metadata.get(_ACTIVATES):
        refuse_activated(label, _ACTIVATES)
    parts = read_adapter(header.metadata, shapes, text_config(config), label)
    problems: list[str] = []
    pairs: list[Pair] = []
    for origin in parts.tensors.values():
        pair = _pair(origin, tensors, parts.alpha)
        fault = check_pair(pair, None) or _mixed(origin, tensors)
        problems += [fault] if fault else []
        pairs.append(pair)
    refuse(label, problems)
    base = header.metadata.get("general.base_model.0.name")
    return AdapterSource(
        label=label,
        kind="gguf",
        file=WeightFile(path.name, path, Header((), {}, header.identity)),
        config=None,
        pairs=tuple(pairs),
        whole={name: tensors[theirs] for name, theirs in parts.norms.items()},
        base=base if isinstance(base, str) else None,
        # The converter names what PEFT says of the head `output`, so a table's pair is for what is looked up.
        # llama.cpp itself has no answer: it ends at such a pair where the head is the table.
        unties=True,
        facts={"alpha": parts.alpha},
        notes=(*header.notes, *_meant(header.metadata)),
    )


def _meant(metadata: Mapping[str, Any]) -> Iterator[str]:
    """What llama.cpp tells of an adapter and does nothing with."""
    task, prefix = metadata.get(TASK), metadata.get(PREFIX)
    if task:
        yield f"its task is called {quoted(task)}"
    if prefix:
        yield f"texts for it begin with {quoted(prefix)}, which whoever asks has to write"


def _stored(tensor: GgufTensor, label: str) -> TensorInfo:
    halves_of, _, half = tensor.name.rpartition(".")
    paired = half in ("lora_a", "lora_b")
    dtype = _TYPES.get(tensor.type.name)
    if dtype is None or (dtype == Q8_0 and not paired):
        raise UnsupportedSource(
            f"{label}: `{shown(tensor.name)}` is {tensor.type.name.upper()}; adapters are F32, F16, BF16 or "
            "Q8_0, and norms in them floats"
        )
    shape = meant_shape(halves_of, tensor.shape, 2) if paired else tensor.shape
    return TensorInfo(tensor.name, dtype, shape, tensor.path, tensor.start, tensor.stop)


def _mixed(origin: Origin, tensors: Mapping[str, TensorInfo]) -> str | None:
    # llama.cpp's Q8_0 takes one half alone where the rank is no multiple of 32, and the other is F16.
    kinds = {
        (tensors[halves(name)[0][0]].dtype, tensors[halves(name)[1][0]].dtype) for name in origin.tensors
    }
    ranks = {_factor(tensors, name, 0).shape[-1] for name in origin.tensors}
    if len(kinds) > 1 or len(ranks) > 1:
        return f"the pairs that make {shown(origin.name)} are of several types or ranks"
    return None


def _pair(origin: Origin, tensors: Mapping[str, TensorInfo], alpha: float) -> Pair:
    """With the ranks of all that it is made of, which have one scale and so one rank (`_mixed`)."""
    if isinstance(origin.change, Turned):
        origin = replace(origin, shape=origin.change.before(origin.shape), change=None)
    ranks = [_factor(tensors, name, 0).shape[-1] for name in origin.tensors]
    first = origin.tensors[0]
    left, right = (_factor(tensors, first, side) for side in (0, 1))
    *leading, rows, columns = origin.shape
    left = replace(left, meant=(*leading, rows, sum(ranks)))
    right = replace(right, meant=(*leading, sum(ranks), columns))
    scale = alpha / ranks[0] if alpha else 1.0
    return Pair(
        (origin.name,),
        left,
        right,
        scale,
        table=first == EMBEDDING,
        made=GgufOrigin(
            origin, {name: (_factor(tensors, name, 0), _factor(tensors, name, 1)) for name in origin.tensors}
        ),
    )


def _factor(tensors: Mapping[str, TensorInfo], name: str, side: int) -> Factor:
    stored, turned = halves(name)[side]
    return Factor(tensors[stored], turned)
