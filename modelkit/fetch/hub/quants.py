"""Which of a repository's GGUF files a quant means: `Q4_K_M`, in capitals or not.

The quant is part of a file's name, between `-`, `_` or `.` marks, or else its folder's; shards of one file
count as one, wherever its folder is. Projectors (mmproj) and importance matrices are not models; adapters and
drafts that lie beside models have to be named. Without a quant it is the one that llama.cpp and the hub take,
too: Q4_K_M, else Q8_0, else the only one there is. Nothing is guessed beyond that: where two files would do,
both are named. A shard that is missing is in the way of its own model only.
"""

import re
from collections.abc import Iterable, Mapping

from modelkit.errors import FetchError
from modelkit.fetch.hub.listing import Listed
from modelkit.source.gguf.folder import is_beside, is_gguf
from runtime.quoting import shown
from runtime.records import dataclass

_DEFAULTS = ("Q4_K_M", "Q8_0")
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})", re.ASCII | re.IGNORECASE)
_QUANT = re.compile(
    r"(?:^|[-_.])((?:UD[-_])?(?:I?Q\d(?:_[A-Z0-9]{1,3}){0,3}|TQ\d_\d|BF16|FP?16|FP?32|MXFP4(?:_MOE)?|NVFP4))"
    r"(?=$|[-.])",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(r"mmproj|imatrix", re.IGNORECASE)
_MOST_SHOWN = 24


@dataclass(frozen=True, slots=True)
class GgufModel:
    """One model in GGUF: a file, or all its shards."""

    stem: str
    """Its path without the number of the shard and the suffix."""
    quant: str | None
    """As the name has it; None where it has none."""
    files: tuple[Listed, ...]
    """In the order of the shards."""
    gap: str | None = None
    """What is wrong with the shards, in a sentence; None where they are all there."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def gguf_models(files: Iterable[Listed]) -> list[GgufModel]:
    """The models in GGUF among some files, drafts and adapters included."""
    found: dict[tuple[str, int], dict[int, Listed]] = {}
    for file in files:
        if not is_gguf(file.name) or _NO_MODEL.search(file.name.rpartition("/")[2]):
            continue
        path = file.name[: -len(".gguf")]
        shard = _SHARD.fullmatch(path)
        key = (shard["stem"], int(shard["count"])) if shard else (path, 1)
        found.setdefault(key, {})[int(shard["number"]) if shard else 1] = file
    return [_joined(stem, count, shards) for (stem, count), shards in sorted(found.items())]


def quant_of(stem: str) -> str | None:
    """The last quant in a file's name, or in that of its folder."""
    for part in stem.rsplit("/", 2)[:-3:-1]:
        if named := _QUANT.findall(part):
            return str(named[-1]).replace("UD_", "UD-")
    return None


def pick(models: list[GgufModel], quant: str | None, repository: str) -> GgufModel:
    """The model that `quant` means. Raises FetchError, which lists what there is."""
    models = [one for one in models if not is_beside(one.files[0].name)] or models
    for wanted in [quant] if quant else _DEFAULTS:
        same = _of_quant(models, wanted)
        if len(same) == 1:
            return whole(same[0])
        if same:
            raise _refusal(f"{repository} has {len(same):,} files of {wanted}", same, repository)
    if quant is None and len(models) == 1:
        return whole(models[0])
    said = (
        f"{repository} has no {quant}" if quant else f"{repository} has {len(models)} models to choose from"
    )
    raise _refusal(said, models, repository)


def _of_quant(models: list[GgufModel], wanted: str) -> list[GgufModel]:
    """Those of exactly that quant; else those that differ in `UD-` before it."""

    def spelled(quant: str | None) -> str:
        return (quant or "").upper().replace("-", "_").replace("FP", "F")

    plain = spelled(wanted)
    same = [model for model in models if spelled(model.quant) == plain]
    return same or [model for model in models if spelled(model.quant).removeprefix("UD_") == plain]


def _joined(stem: str, count: int, shards: Mapping[int, Listed]) -> GgufModel:
    """All shards of a model as one."""
    missing = next((number for number in range(1, count + 1) if number not in shards), None)
    surplus = next((number for number in sorted(shards) if not 1 <= number <= count), None)
    gap = None
    if surplus is not None:
        gap = f"`{shown(stem)}` has a shard of the number {surplus}; they count from 1 to {count}"
    elif missing is not None:
        gap = f"`{shown(stem)}` has {len(shards)} of {count} shards; number {missing} is not there"
    return GgufModel(stem, quant_of(stem), tuple(shards[number] for number in sorted(shards)), gap)


def whole(model: GgufModel) -> GgufModel:
    """The model, where all its shards are there. Raises FetchError."""
    if model.gap is not None:
        raise FetchError(model.gap, hint="Its owner has to repair it. Another quant may be complete.")
    return model


def _refusal(what: str, models: list[GgufModel], repository: str) -> FetchError:
    names = [one.quant for one in models if one.quant]
    unique = len(names) == len(models) == len(set(names))
    there = [str(one.quant) if unique else one.files[0].name for one in models]
    listed = ", ".join(f"{shown(name)}" for name in there[:_MOST_SHOWN])
    example = f"hf.co/{repository}:{there[0]}" if unique else f"hf.co/{repository}/{shown(there[0])}"
    return FetchError(what, hint=f"There are {listed}. Name one: {example}")
