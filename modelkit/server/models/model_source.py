"""Where the pool's models come from: the packages of a store, and nothing else. No path and no address that a
client sends is ever followed.
"""

import os
from collections.abc import Callable
from typing import Any, Protocol

from modelkit.address import looks_like_path
from modelkit.errors import InvalidName, ModelNotFound, StoreError
from modelkit.faults import translated
from modelkit.fetch.find import what_to_do
from modelkit.memory import Memory
from modelkit.model import Model
from modelkit.opening import open_model
from modelkit.settings import Settings
from modelkit.store.name import Name
from modelkit.store.store import Store
from modelkit.verbs import load
from runtime.models import describe
from runtime.quoting import MOST_OF_A_PATH, quoted, shown
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class FoundModel:
    """What a client's name stands for at this moment."""

    name: str
    """With its tag."""
    digest: str
    """Of the package; names with the same share one model. The name, where a source knows no packages."""


class LoadListener(Protocol):
    """Is told how a load goes, on any thread. What it raises ends the load, and leaves as it is."""

    def memory(self, memory: Memory, shortage: str | None) -> None:
        """What the model will take, before any weight is read."""
        ...

    def weights(self, nbytes: int) -> None:
        """One more tensor was read, of so many bytes."""
        ...


class ModelSource(Protocol):
    """spelled: a name in full; raises InvalidName. find: what it stands for, within a moment; raises
    ModelNotFound too. load: its model, on any thread. came: what `find` says of a model that it loaded for
    this name, for as long as the name stands for nothing else.
    """

    def spelled(self, name: str) -> str: ...
    def find(self, name: str) -> FoundModel: ...
    def load(self, found: FoundModel, listener: LoadListener) -> Model: ...
    def came(self, found: FoundModel, model: Model) -> FoundModel: ...


class StoredModels:
    """Packages of a store. on_load: called with each model that was loaded, on the thread that did. options:
    further keywords of `modelkit.load`.
    """

    def __init__(
        self, settings: Settings, on_load: Callable[[Model], object] = lambda model: None, **options: Any
    ) -> None:
        self._settings, self._on_load, self._options = settings, on_load, options
        self._store = Store(settings.home)
        self._seen: tuple[object, dict[Name, str]] = (None, {})

    def spelled(self, name: str) -> str:
        return Name.parse(name).short

    def find(self, name: str) -> FoundModel:
        wanted = Name.parse(name)
        digest = self._digests().get(wanted)
        return FoundModel(wanted.short, digest or str(self._store.digest(wanted)))

    def require(self, name: str) -> bool:
        """A package of that name can be opened: all is looked at but the numbers in its weights. Raises
        InvalidName, saying so of a path, ModelNotFound, and what `load` would raise for a damaged one.

        Returns whether it writes text.
        """
        if looks_like_path(name):
            source = f"FROM {shown(name, MOST_OF_A_PATH)}"
            raise InvalidName(
                f"{quoted(name, MOST_OF_A_PATH)} is a path, and only packages of the store are served",
                hint=f"Make one of it: `modelkit create NAME`, in its Modelfile `{source}`.",
            )
        try:
            package = self._store.resolve(name)
        except ModelNotFound as error:
            raise ModelNotFound(error.message, hint=what_to_do(name, error)) from error
        with translated(), open_model(str(package.name), self._settings, outlines=True) as opened:
            return describe(opened.inventory.config).writes

    def load(self, found: FoundModel, listener: LoadListener) -> Model:
        self._store.digest(found.name)  # a name that has gone meanwhile is not looked for elsewhere
        calls: Any = {"on_memory": listener.memory, "on_weights": listener.weights}
        model = load(found.name, home=self._settings.home, **calls, **self._options)
        self._on_load(model)
        return model

    def came(self, found: FoundModel, model: Model) -> FoundModel:
        """The name may have been created again after it was looked for, and then that was loaded."""
        return FoundModel(found.name, model.digest or found.digest)

    def _digests(self) -> dict[Name, str]:
        """Those of all packages; the index is read again when it is another file than last time."""
        try:
            file = os.stat(self._store.root / "index.json")
            mark = (file.st_ino, file.st_mtime_ns, file.st_size)
            if self._seen[0] != mark:
                self._seen = mark, {name: str(digest) for name, digest in self._store.digests().items()}
        except (OSError, StoreError):
            self._seen = None, {}
        return self._seen[1]


class FunctionModels:
    """Models of one function. Each name stands for itself."""

    def __init__(self, open_model: Callable[[str], Model]) -> None:
        self._open = open_model

    def spelled(self, name: str) -> str:
        return name

    def find(self, name: str) -> FoundModel:
        return FoundModel(name, name)

    def load(self, found: FoundModel, listener: LoadListener) -> Model:
        return self._open(found.name)

    def came(self, found: FoundModel, model: Model) -> FoundModel:
        """Whatever package the model is of: `find` does not know of it."""
        return found
