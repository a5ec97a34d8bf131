"""A package of plain files, judged before it is there: where its weights are large, all else is fetched
first, and of them the headers, so that a package that cannot run here costs no more.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from modelkit.errors import FetchError
from modelkit.fetch.access import MOMENT_BYTES, NoListener
from modelkit.fetch.pull import Judge
from modelkit.fetch.registry.gguf import Making
from modelkit.fetch.registry.kinds import RemoteLayer
from modelkit.fetch.registry.source import fetch
from modelkit.fetch.registry.together import side_by_side
from modelkit.store.transaction import Transaction
from modelkit.temporary import TemporaryFolder, Unwritable

_AT_ONCE = 4


def judge_early(making: Making, layers: Sequence[RemoteLayer], judge: Judge, new: Transaction) -> None:
    """Raise what `judge` refuses of files that are not fetched yet, as far as headers tell; FetchError and
    StoreError where the small files cannot be had.
    """
    weights = [layer for layer in layers if _is_weights(layer)]
    if sum(new.left_bytes(layer.blob) for layer in weights) <= MOMENT_BYTES:
        return
    others = [layer for layer in layers if layer not in weights]
    quiet = replace(making.access, listener=NoListener())
    fetch(making.source, [layer.blob for layer in others], making.store, new, quiet)
    with TemporaryFolder("pull", "headers of weights") as folder:
        try:
            paths = _hollow(making, weights, folder)
        except (FetchError, Unwritable):  # headers cannot be had; the weights still may
            return
        paths |= {layer.path: making.store.blob_path(layer.blob.digest) for layer in others}
        judge(paths, making.label, hollow=True)


def _hollow(making: Making, weights: list[RemoteLayer], folder: TemporaryFolder) -> dict[str, Path]:
    paths, _ = dict[str, Path](), folder.path  # made here, and not by several threads at once

    def one(layer: RemoteLayer) -> None:
        paths[layer.path] = making.hollow(folder, layer.path, layer.blob)

    side_by_side([lambda layer=layer: one(layer) for layer in weights], _AT_ONCE, lambda error: None)
    return paths


def _is_weights(layer: RemoteLayer) -> bool:
    """Is it of the model's, or its draft's? Adapters and what pools hidden states are small."""
    return layer.path.endswith(".safetensors") and "/" not in layer.path.removeprefix("draft/")
