"""A package judged before it is there: where its weights are large, all else is fetched first, and of them
the headers, so that a package that cannot run here costs no more. What a large archive holds is known when it
is here, so beside those it is the config that is judged.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from modelkit.errors import FetchError
from modelkit.fetch.access import MOMENT_BYTES, NoListener
from modelkit.fetch.pull import Judge
from modelkit.fetch.registry.gguf import Making
from modelkit.fetch.registry.kinds import RemoteLayer, RemotePackage
from modelkit.fetch.registry.parallel import side_by_side
from modelkit.fetch.registry.source import fetch
from modelkit.fetch.registry.unpack import unpack
from modelkit.store.outline import FILE as OUTLINE
from modelkit.store.transaction import Transaction
from modelkit.temporary import TemporaryFolder, Unwritable

_AT_ONCE = 4
_LARGE_BYTES = MOMENT_BYTES


def judge_early(making: Making, package: RemotePackage, judge: Judge, new: Transaction) -> None:
    """Raise what `judge` refuses of files that are not fetched yet; FetchError and StoreError where the small
    files cannot be had.
    """
    large = [layer for layer in package.layers if _is_large(layer)]
    if sum(new.left_bytes(layer.blob) for layer in large) <= MOMENT_BYTES:
        return
    others = [layer for layer in package.layers if layer not in large]
    quiet = replace(making.access, listener=NoListener())
    fetch(making.source, [layer.blob for layer in others], making.store, new, quiet)
    files = unpack(replace(package, layers=tuple(others)), new, making.store)
    here = {path: making.store.blob_path(blob.digest) for path, blob in files.items()}
    if OUTLINE in files:
        return
    if any(layer.packing != "raw" for layer in large):
        if "config.json" in files:
            judge(here, making.label, "elsewhere")
        return
    with TemporaryFolder("pull", "headers of weights") as folder:
        try:
            hollow = _hollow(making, large, folder)
        except (FetchError, Unwritable):  # headers cannot be had; the weights still may
            return
        judge({**here, **hollow}, making.label, "headers")


def _hollow(making: Making, weights: Sequence[RemoteLayer], folder: TemporaryFolder) -> dict[str, Path]:
    paths, _ = dict[str, Path](), folder.path  # made here, and not by several threads at once

    def one(layer: RemoteLayer) -> None:
        paths[layer.path] = making.hollow(folder, layer.path, layer.blob)

    def stop(error: BaseException) -> None:
        if not isinstance(error, FetchError):  # somebody has pressed Ctrl-C; the weights are not wanted then
            making.source.registry.abort(for_good=True)

    side_by_side([lambda layer=layer: one(layer) for layer in weights], _AT_ONCE, stop)
    return paths


def _is_large(layer: RemoteLayer) -> bool:
    """Is it weights of the model or its draft, or as large as some? Adapters, and what pools hidden states,
    are small.
    """
    weights = layer.path.endswith(".safetensors") and "/" not in layer.path.removeprefix("draft/")
    return (weights and layer.packing == "raw") or layer.blob.size_bytes > _LARGE_BYTES
