"""Which files of a repository are needed: the weights, and what belongs to them. The rest stays where it is.

A list of what is wanted, never of what is not: repositories hold the same weights three times
(`consolidated`, `*.bin`, `original/`), exports for other programs, code. What belongs to weights is
`source.companion_files`' to say, so that exactly what a package keeps is fetched.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from modelkit.address import HubAddress
from modelkit.errors import FetchError, StoreError, UnsupportedSource
from modelkit.fetch.hub.listing import Listed, Listing
from modelkit.fetch.hub.quants import GgufModel, gguf_models, pick, whole
from modelkit.source.adapters import mlx, peft
from modelkit.source.companion_files import documents_of, kept_of, of_texts
from modelkit.source.gguf.folder import is_gguf
from modelkit.source.shards import INDEX, is_model
from modelkit.source.sniff import weights_kind
from modelkit.source.tree import is_own
from modelkit.store.manifest import check_files
from runtime.quoting import shown
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """What to fetch."""

    files: tuple[Listed, ...]
    """In the order of their names."""
    weights: tuple[str, ...]
    """Those of them that hold the weights; the first is the one to name where only one can be."""
    quant: str | None = None
    """That of the weights, where they are in GGUF."""

    @property
    def is_gguf(self) -> bool:
        return is_gguf(self.weights[0])

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def choose_model(listing: Listing, address: HubAddress, weights: Callable[[], Sequence[str]]) -> Choice:
    """What an address of a model needs of its repository.

    weights: tells the safetensors that are its weights, none where it has no such; for that an index may have
    to be read. Raises FetchError where there is no such thing as was asked for, UnsupportedSource for weights
    of other kinds.
    """
    top = {name: file for name, file in listing.files.items() if is_own(name)}
    if address.file is not None:
        chosen = _of_file(listing, address.file, address)
    elif address.quant is None and (found := weights()):
        chosen = _safetensors(top, found)
    elif models := gguf_models(listing.files.values()):
        chosen = _gguf(top, pick(models, address.quant, listing.repository))
    else:
        raise _nothing(listing, address)
    _check_distinct(chosen, address)
    _check_files(chosen, address)
    return chosen


def choose_adapter(listing: Listing, address: HubAddress, _: Callable[[], Sequence[str]]) -> Choice:
    """What an address of a LoRA adapter needs of its repository. Raises FetchError."""
    top = {name: file for name, file in listing.files.items() if "/" not in name}
    weights = [name for name in (peft.WEIGHTS, mlx.WEIGHTS) if name in top]
    if address.quant or address.file:
        raise FetchError(
            f"{address}: an adapter is named by its repository alone: hf.co/{listing.repository}"
        )
    if not weights:
        raise FetchError(
            f"{address} is not an adapter: it has neither {peft.WEIGHTS} (PEFT) nor {mlx.WEIGHTS} (mlx-lm)",
            hint=f"There are {_some(listing.files)}.",
        )
    names = {*documents_of(top), *of_texts(top)} | {*weights, *({peft.CONFIG} & top.keys())}
    return Choice(tuple(top[name] for name in sorted(names)), tuple(weights))


def _check_distinct(chosen: Choice, address: HubAddress) -> None:
    """Files of one name in capitals and not would be one file on some disks."""
    names = [local_name(file.name).casefold() for file in chosen.files]
    seen = set[str]()
    for name in names:
        if name in seen:
            raise FetchError(f"{address} has two files called `{shown(name)}`")
        seen.add(name)


def _check_files(chosen: Choice, address: HubAddress) -> None:
    """What no package can have is refused before it is fetched. GGUF files become others, with an index."""
    try:
        check_files({INDEX, *(local_name(file.name) for file in chosen.files if not is_gguf(file.name))})
    except StoreError as error:
        raise FetchError(f"{address}: {error.message}", hint=error.hint) from error


def local_name(name: str) -> str:
    """What a file of a repository is called in the model: weights may lie in a folder there."""
    return name if is_own(name) else name.rpartition("/")[2]


def _safetensors(top: Mapping[str, Listed], weights: Sequence[str]) -> Choice:
    names = {*kept_of(top)} | set(weights) | ({INDEX} & top.keys())
    return Choice(tuple(top[name] for name in sorted(names)), tuple(weights))


def _gguf(top: Mapping[str, Listed], model: GgufModel) -> Choice:
    documents = [top[name] for name in documents_of(top)]
    return Choice((*documents, *model.files), tuple(file.name for file in model.files), model.quant)


def _of_file(listing: Listing, name: str, address: HubAddress) -> Choice:
    top = {path: file for path, file in listing.files.items() if is_own(path)}
    if name not in listing.files:
        raise FetchError(
            f"{address}: there is no file `{shown(name)}` at commit {listing.commit[:12]}",
            hint=f"There are {_some(listing.files)}.{_of_page(name)}",
        )
    for model in gguf_models(listing.files.values()):
        if any(file.name == name for file in model.files):
            return _gguf(top, whole(model))
    if name.endswith(".safetensors") and name in top:
        kept = [top[one] for one in kept_of(top)]
        return Choice((*kept, top[name]), (name,))
    raise UnsupportedSource(
        f"{address}: `{shown(name)}` is not a model",
        hint="Name a .gguf or .safetensors file, or none at all.",
    )


def _of_page(name: str) -> str:
    """What to do where a browser's address was given without its beginning."""
    page = re.match(r"(?:tree|blob|resolve|raw|commits?)/([^/]+)", name)
    return f"\nThe address of a page begins with https://; else @{page[1]} names a revision." if page else ""


def _nothing(listing: Listing, address: HubAddress) -> FetchError | UnsupportedSource:
    """Neither safetensors nor GGUF: say what is there instead."""
    if address.quant is not None and any(map(is_model, listing.files)):
        return FetchError(
            f"{address}: there are no GGUF files, so none of {address.quant}",
            hint=f"Its safetensors are taken by hf.co/{listing.repository}; create -q makes formats of them.",
        )
    if "adapter_config.json" in listing.files:
        return UnsupportedSource(
            f"{address} is a LoRA adapter, not a model", hint="FROM takes the base model, ADAPTER this one."
        )
    beside = next((name for name in sorted(listing.files) if is_gguf(name)), None)
    if beside is not None:
        return UnsupportedSource(
            f"{address} has no model in GGUF, but what belongs to one: `{shown(beside)}`",
            hint="Projectors (mmproj) and importance matrices are not read here.",
        )
    for name in sorted(listing.files):
        other = weights_kind(name)
        if other is not None:
            return UnsupportedSource(
                f"{address} holds its weights as {other[0]} only (`{shown(name)}`)", hint=other[1]
            )
    return FetchError(
        f"{address} has no model*.safetensors and no .gguf", hint=f"There are {_some(listing.files)}."
    )


def _some(files: Mapping[str, Listed]) -> str:
    names = sorted(files)
    listed = ", ".join(f"`{shown(name)}`" for name in names[:12]) or "no files"
    return listed if len(names) <= 12 else f"{listed} and {len(names) - 12} more"
