"""Which of a source's files are its weights, and whether all of them are there.

With `model.safetensors.index.json` the index decides: exactly the shards that it names, and each tensor in
the shard that it says. Without one, every top-level `model*.safetensors`. A set that is incomplete, has a
piece too many, or could be read in two ways is refused by name; nothing is guessed.
"""

import re
from collections.abc import Iterable, Mapping

from modelkit.errors import MalformedFile, SourceError
from modelkit.source.strict_json import read_json
from modelkit.source.tensor import TensorInfo
from modelkit.source.tree import Files, is_safe_relative
from runtime.quoting import quoted, shown

INDEX = "model.safetensors.index.json"
INDEX_LIMIT_BYTES = 64_000_000  # 200,000 tensors at 300 bytes; the largest published ones are near 15 MB
SHARD = re.compile(r"(.+)-(\d{1,6})-of-(\d{1,6})\.safetensors", re.ASCII)


def read_index(files: Files, origin: str) -> dict[str, str] | None:
    """Tensor name -> shard name, or None without an index. Every shard is a bare name that the source has.

    Raises MalformedFile for an index of another shape or with a name that is a path, SourceError for absent
    shards.
    """
    if INDEX not in files:
        return None
    label = f"{origin}/{INDEX}"
    placed = read_json(files[INDEX], limit=INDEX_LIMIT_BYTES, label=label).get("weight_map")
    if not isinstance(placed, dict) or not placed:
        raise MalformedFile(f"{label} has no `weight_map` that places tensors in shards")
    for tensor, shard in placed.items():
        if not isinstance(shard, str) or not _is_bare(shard):
            raise MalformedFile(
                f"{label} places `{shown(tensor)}` in {quoted(shard)}; "
                "the bare name of a .safetensors file was expected"
            )
    missing = sorted(set(placed.values()) - files.keys())
    if missing:
        other = next((name for name in files if is_model(name) and name not in placed.values()), None)
        out_of_date = f" Or remove the index, if {shown(other)} is the model." if other else ""
        raise SourceError(
            f"the source is incomplete: {label} names {_some(missing)}, which is not there",
            hint=f"Download the missing files.{out_of_date}",
        )
    return placed


def weight_names(files: Files, index: Mapping[str, str] | None, origin: str) -> tuple[str, ...]:
    """The names of the weight files, in name order; empty when there are none.

    Raises SourceError when a file is missing from the set or one too many is there.
    """
    found = sorted(name for name in files if is_model(name))
    if index is None:
        _check_set(found, origin)
        return tuple(found)
    named = set(index.values())
    surplus = [name for name in found if name not in named]
    if surplus:
        raise SourceError(
            f"{origin} holds {_some(surplus)}, which {INDEX} does not name",
            hint="Remove what does not belong to this model, or the index when it is out of date.",
        )
    return tuple(sorted(named))


def check_placement(
    tensors: Mapping[str, tuple[str, TensorInfo]], index: Mapping[str, str], origin: str
) -> None:
    """Each indexed tensor is in its shard, and no other is there. `tensors`: name -> (shard, tensor)."""
    label = f"{origin}/{INDEX}"
    absent = sorted(index.keys() - tensors.keys())
    if absent:
        raise SourceError(
            f"the source is incomplete: {label} places {_some(absent)} in {index[absent[0]]}, "
            "which does not hold it",
            hint="Download the shards again.",
        )
    for name, (shard, _) in tensors.items():
        if name not in index:
            raise SourceError(f"{origin}/{shard} holds the tensor `{name}`, which {INDEX} does not name")
        if index[name] != shard:
            raise SourceError(f"{label} places `{name}` in {index[name]}; it is in {shard}")


def _is_bare(name: str) -> bool:
    return "/" not in name and name.endswith(".safetensors") and is_safe_relative(name)


def is_model(name: str) -> bool:
    """Is a file of this name one of a model's weights, where no index says which are?"""
    return name.startswith("model") and _is_bare(name)


def _check_set(names: list[str], origin: str) -> None:
    """Without an index the names alone must say that the set is whole."""
    shards = {name: match for name in names if (match := SHARD.fullmatch(name))}
    if len(names) > 1 and len(shards) != len(names) and (shards or "model.safetensors" in names):
        raise SourceError(
            f"{origin} can be read in more than one way: it holds {_some(names)}",
            hint="Keep one set of weights in the folder, or name one file: FROM path/to/model.safetensors",
        )
    counts = {(match[1], int(match[3])) for match in shards.values()}
    if len(counts) > 1:
        raise SourceError(f"{origin} mixes shards of several sets: {_some(names)}")
    for stem, count in counts:
        missing = _missing(shards.values(), count)
        if missing:
            width = len(next(iter(shards.values()))[3])
            absent = [f"{stem}-{number:0{width}}-of-{count:0{width}}.safetensors" for number in missing]
            raise SourceError(
                f"the source is incomplete: {origin} lacks {_some(absent)}",
                hint="Download the missing files.",
            )
        if len(names) != count:
            raise SourceError(f"{origin} holds {len(names)} shards that say they are {count}: {_some(names)}")


def _missing(shards: Iterable[re.Match[str]], count: int) -> list[int]:
    """The first few numbers in 1..count that no shard has; the count is only a claim in a name."""
    there = {int(match[2]) for match in shards}
    absent: list[int] = []
    for number in range(1, count + 1):
        if number not in there:
            absent.append(number)
            if len(absent) > 4:
                break
    return absent


def _some(names: list[str]) -> str:
    listed = ", ".join(f"`{shown(name)}`" for name in names[:4])
    return listed if len(names) <= 4 else f"{listed} and more"
