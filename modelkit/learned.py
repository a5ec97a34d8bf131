"""What running a package taught about its drafts, kept in the store from one run to the next.

Costs are those of a setting (device, threads, format of keys and values), so each setting has its own entry.
All of a package's are one of the store's memos, which goes with the package at the next prune. It decides
about speed only: where it cannot be read, nothing is known yet, and where it cannot be written, the next run
learns again, with a warning where the disk is full.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from modelkit.errors import DiskFull, ModelkitError
from modelkit.store.store import Store
from runtime.records import dataclass
from runtime.speculate.lessons import Lessons, from_json

_MOST_SETTINGS = 16


@dataclass(frozen=True, slots=True)
class Learning:
    """Where one run's knowledge belongs."""

    home: Path
    """The folder of modelkit's own state."""
    package: str
    """The digest of its manifest, as text."""
    setting: str
    """Device, threads and format of keys and values: what a draft costs depends on them."""

    def recall(self) -> object:
        """What `keep` stored last; None for nothing."""
        return _settings(Store(self.home), self.package).get(self.setting)

    def keep(self, learned: Mapping[str, Any]) -> None:
        """Store what an engine learned, unless it is what is known already."""
        try:
            self._store(learned)
        except DiskFull as error:
            _warn(error.message)
        except (ModelkitError, OSError):
            pass

    def _store(self, learned: Mapping[str, Any]) -> None:
        store = Store(self.home)
        known = _settings(store, self.package)
        if from_json(learned) in ({}, from_json(known.get(self.setting))):
            return
        others = [(name, value) for name, value in known.items() if name != self.setting]
        settings = dict([*others, (self.setting, learned)][-_MOST_SETTINGS:])
        store.memo_put(_key(self.package), {"package": self.package, "settings": settings})


def setting_of(threads: int, kv_format: str | None) -> str:
    """Of this machine, in words. threads: as asked for, 0 for as many as there are."""
    from runtime import device  # needs MLX, which `show` can do without

    here = device.device()
    name = here.name if here.name != "unknown" else here.kind
    count = threads or here.cores
    return f"{name}, {count} threads" + (f", keys and values in {kv_format}" if kv_format else "")


def lessons_of(store: Store, package: str) -> dict[str, Lessons]:
    """Setting -> what is known of a package's drafters there."""
    read = {setting: from_json(value) for setting, value in _settings(store, package).items()}
    return {setting: lessons for setting, lessons in read.items() if lessons}


def _settings(store: Store, package: str) -> Mapping[str, Any]:
    with suppress(ModelkitError, OSError):
        settings = (store.memo_get(_key(package)) or {}).get("settings")
        return settings if isinstance(settings, dict) else {}
    return {}


def _key(package: str) -> str:
    return f"learned of {package}"


def _warn(reason: str) -> None:
    import logging  # late: most processes have nothing to warn of

    logging.getLogger(__name__).warning("what was learned of drafts is not kept: %s", reason)
