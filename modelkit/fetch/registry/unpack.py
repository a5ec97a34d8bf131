"""Layers that are in the store -> the files of a package: a raw layer is one, an archive holds some."""

from collections.abc import Mapping

from modelkit.errors import FetchError, StoreError
from modelkit.fetch.registry.archive import members
from modelkit.fetch.registry.kinds import RemoteLayer, RemotePackage
from modelkit.store.digest import Blob
from modelkit.store.manifest import LAYER_LIMIT
from modelkit.store.paths import check_tree
from modelkit.store.store import Store
from modelkit.store.transaction import Transaction
from runtime.quoting import quoted


def unpack(package: RemotePackage, new: Transaction, store: Store) -> Mapping[str, Blob]:
    """Every file by its path. Raises FetchError for two of one path, and for an archive that is refused."""
    files: dict[str, Blob] = {}
    try:
        for layer in package.layers:
            found = {layer.path: layer.blob} if layer.packing == "raw" else _from_archive(layer, new, store)
            twice = files.keys() & found.keys()
            if twice:
                raise FetchError(f"the package has two files {quoted(min(twice))}")
            files.update(found)
            if len(files) > LAYER_LIMIT:
                raise FetchError(f"the package has more than {LAYER_LIMIT:,} files")
        check_tree(files)
    except StoreError as error:
        raise FetchError(error.message, hint=error.hint) from error
    return files


def _from_archive(layer: RemoteLayer, new: Transaction, store: Store) -> dict[str, Blob]:
    what = f"the layer {layer.blob.digest.short}"
    files: dict[str, Blob] = {}
    with store.blob_path(layer.blob.digest).open("rb") as archive:
        for member in members(archive, layer.blob.size_bytes, layer.packing, what):
            if member.path in files:
                raise FetchError(f"{what} holds two files {quoted(member.path)}")
            store.require_space(member.size_bytes)
            with new.write_blob() as writer:
                for piece in member.pieces:
                    writer.write(piece)
                files[member.path] = writer.commit()
    return files
