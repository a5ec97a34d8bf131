"""Packages that hold a GGUF file: fetched into the store, then made into one of ours, as FROM does it.

Before anything large is fetched, what the headers of the weights tell is judged: what cannot be packaged
costs a few requests and not many gigabytes. The fetched blobs are kept while the package is made, and freed
afterwards.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

from modelkit.errors import FetchError
from modelkit.fetch.access import MOMENT_BYTES, Access, NoListener
from modelkit.fetch.hollow import write_hollow
from modelkit.fetch.local import Local
from modelkit.fetch.ollama import Belongings, OllamaManifest, belongings
from modelkit.fetch.pull import Foresee, Make, Pulled
from modelkit.fetch.registry.ranges import knows_ranges, read_range
from modelkit.fetch.registry.source import Source, fetch
from modelkit.fetch.upstream import Upstream
from modelkit.modelfile import Recipe, Reference
from modelkit.source.gguf.folder import is_gguf, is_later_shard
from modelkit.store.digest import Blob
from modelkit.store.name import Name
from modelkit.store.store import Store
from modelkit.store.transaction import Transaction
from modelkit.temporary import TemporaryFolder, Unwritable
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class GgufFiles:
    """The files of a package, one of which is a model in GGUF, and what belongs to it."""

    files: Mapping[str, Blob]
    """By their paths."""
    said: Belongings = field(default_factory=lambda: Belongings((), ()))
    adapters: Mapping[str, Blob] = field(default_factory=dict[str, Blob])
    """By name."""
    notes: tuple[str, ...] = ()

    @property
    def weights(self) -> dict[str, Blob]:
        return {path: self.files[path] for path in sorted(self.files) if is_gguf(path)}

    @property
    def images(self) -> list[str]:
        return [path for path in self.weights if "mmproj" in path.lower()]

    def model(self, label: str) -> str:
        """The path of the model, of one in shards that of the first. Raises FetchError where there is not
        exactly one; `label` is the package.
        """
        models = [path for path in self.weights if path not in self.images and not is_later_shard(path)]
        if len(models) != 1:
            raise FetchError(f"{label} holds {len(models)} models in GGUF; exactly one is read")
        return models[0]


@dataclass(frozen=True, slots=True)
class Making:
    """A package that is made of what comes from a registry: what is asked for, and who does it."""

    source: Source
    name: Name
    store: Store
    access: Access
    make: Make
    foresee: Foresee | None
    quantize: str | None

    @property
    def label(self) -> str:
        return str(self.source.address)

    def judge(self, found: GgufFiles, new: Transaction) -> None:
        """Raise what would be refused of files that are not fetched yet, as far as headers tell."""
        if not found.weights:
            return
        found.model(self.label)
        missing_bytes = sum(new.left_bytes(blob) for blob in found.weights.values())
        if self.foresee is None or missing_bytes <= MOMENT_BYTES:
            return
        with TemporaryFolder("pull", "headers of weights") as folder:
            try:
                paths = {path: self.hollow(folder, path, blob) for path, blob in found.weights.items()}
            except (FetchError, Unwritable):  # headers cannot be had; the weights still may
                return
            recipe, access = self._local(found, paths, hollow=True)
            self.foresee(recipe, self.store, quantize=self.quantize, access=access)

    def package(self, found: GgufFiles) -> Pulled:
        """Import stored files, which the caller keeps meanwhile. Raises FetchError where there are several
        models, and what `create` raises.
        """
        with TemporaryFolder("pull", "links to what was fetched") as folder:
            paths = {path: self._linked(folder, path, blob) for path, blob in found.files.items()}
            adapters = tuple(self._adapter(folder, *one) for one in found.adapters.items())
            recipe, access = self._local(found, paths, adapters)
            made = self.make(
                recipe,
                self.name,
                self.store,
                quantize=self.quantize,
                progress=self.access.listener,
                access=access,
            )
        return Pulled(self.name, made.digest, made.size_bytes, made.notes)

    def _local(
        self,
        found: GgufFiles,
        paths: Mapping[str, Path],
        adapters: tuple[Local, ...] = (),
        *,
        hollow: bool = False,
    ) -> tuple[Recipe, Access]:
        """The recipe of one line, and an access that has here what it names."""
        address = self.source.address
        local = Local(
            label=self.label,
            files=paths,
            gguf=paths[found.model(self.label)],
            upstream=self._upstream(found),
            promised={} if hollow else {paths[path]: found.files[path].digest for path in paths},
            directives=found.said.directives,
            adapters=adapters,
            hollow=hollow,
            notes=(
                *found.notes,
                *found.said.notes,
                *(f"{path} is left out: images are not read here" for path in found.images),
            ),
        )
        return Recipe(from_=Reference(self.label, None, address)), replace(self.access, here={address: local})

    def hollow(self, folder: TemporaryFolder, path: str, blob: Blob) -> Path:
        """A file with the header of weights in the registry; raises FetchError."""
        registry, repository = self.source.registry, self.source.address.repository
        if not knows_ranges(registry, repository, blob):
            raise FetchError(f"{registry.host} sends no parts of a blob")

        def piece(start: int, stop: int) -> bytes:
            return b"".join(read_range(registry, repository, blob, start, stop))

        hollow = folder.path / path
        with folder.writing():
            write_hollow(piece, path, blob.size_bytes, hollow)
        return hollow

    def _adapter(self, folder: TemporaryFolder, name: str, blob: Blob) -> Local:
        path = self._linked(folder, f"adapters/{name}.gguf", blob)
        return Local(name, {path.name: path}, promised={path: blob.digest})

    def _linked(self, folder: TemporaryFolder, name: str, blob: Blob) -> Path:
        """A name for a blob, by which others see what is in it."""
        path = folder.path / name
        with folder.writing():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(self.store.blob_path(blob.digest))
        return path

    def _upstream(self, found: GgufFiles) -> Upstream:
        address = self.source.address
        return Upstream(
            kind=address.dialect if address.dialect == "ollama" else "registry",
            endpoint=str(self.source.registry.url).rstrip("/"),
            repository=address.repository,
            requested=address.tag,
            commit=str(self.source.document.blob.digest),
            files=found.files,
        )


def pull_ollama(making: Making, manifest: OllamaManifest) -> Pulled:
    """A package of Ollama's: its GGUF file, adapters, and what a Modelfile says beside them."""
    source, store, access = making.source, making.store, making.access
    files, adapters = {"model.gguf": manifest.gguf(making.label)}, manifest.adapters()
    with store.begin() as new:
        # What is small comes first: where it is refused, nothing large has been fetched for nothing.
        fetch(source, manifest.texts(), store, new, replace(access, listener=NoListener()))
        said = belongings(manifest, lambda blob: store.blob_path(blob.digest).read_bytes())
        found = GgufFiles(files, said, adapters)
        making.judge(found, new)
        fetch(source, [*files.values(), *adapters.values()], store, new, access)
        return making.package(found)
