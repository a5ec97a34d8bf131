"""Folders of huggingface_hub's cache, as rooms need them that do not fetch. Nothing is opened; only names are
looked at.
"""

import re
from pathlib import Path

_CACHED = re.compile(r"models--.+")


def newest_snapshot(folder: Path) -> Path | None:
    """A cache folder `models--owner--model` holds links in snapshots/REVISION: those are the model."""
    if not _CACHED.fullmatch(folder.name):
        return None
    try:
        found = [one for one in (folder / "snapshots").iterdir() if (one / "config.json").exists()]
        return max(found, key=lambda one: one.stat().st_mtime, default=None)
    except OSError:
        return None
