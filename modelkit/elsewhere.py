"""Where a model is that somebody names as other programs do: `Qwen/Qwen3-8B`, `hf.co/...`, `llama3.2:1b`.

modelkit downloads nothing. Whoever writes such a name is told the command that does, or, where
huggingface_hub has the model in its cache already, the folder to name instead. Nothing is opened; only names
are looked at.
"""

import os
import re
import shlex
from pathlib import Path

from modelkit.settings import hub_cache

_SCHEME = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//|hf:", re.IGNORECASE)
_HUB = re.compile(r"(?:https?://)?(?:www\.)?(?:hf\.co|huggingface\.co)/|hf:(?://)?", re.IGNORECASE)
_OWNED = re.compile(r"([A-Za-z0-9][\w.-]{0,95})/([A-Za-z0-9][\w.-]{0,95})")
_TAGGED = re.compile(r"[A-Za-z0-9][\w.-]*:[\w.-]+")
_CACHED = re.compile(r"models--.+")


def where_to_get(text: str) -> str | None:
    """What to do about a name that no package has; None where it does not look like another program's."""
    repository = _repository(text)
    if repository is not None:
        folder = cached(repository)
        if folder is not None:
            return f"huggingface_hub has it in its cache. Name that folder: {shlex.quote(str(folder))}"
        model = repository.partition("/")[2]
        return (
            f"Nothing is downloaded here. Get it with: hf download {repository} --local-dir {model}\n"
            f"Then name the folder: ./{model}"
        )
    if _SCHEME.match(text):
        return "Nothing is downloaded here. Get the model's files, and name their folder: ./my-model"
    if _TAGGED.fullmatch(text):
        return (
            "`modelkit list` shows what is stored. Names of Ollama's library are not known here, and there\n"
            "is no pull yet: find the model on huggingface.co, get it with\n"
            "`hf download OWNER/MODEL --local-dir MODEL`, and name the folder: ./MODEL"
        )
    return None


def is_address(text: str) -> bool:
    """Can `text` only be meant as an address on the network?"""
    return bool(_SCHEME.match(text) or _HUB.match(text))


def cached(repository: str) -> Path | None:
    """The newest snapshot of `owner/model` in the cache of huggingface_hub that has a config.json."""
    return newest_snapshot(hub_cache() / f"models--{repository.replace('/', '--')}")


def newest_snapshot(folder: Path) -> Path | None:
    """A cache folder `models--owner--model` holds links in snapshots/REVISION: those are the model."""
    if not _CACHED.fullmatch(folder.name):
        return None
    try:
        found = [one for one in (folder / "snapshots").iterdir() if (one / "config.json").exists()]
        return max(found, key=lambda one: one.stat().st_mtime, default=None)
    except OSError:
        return None


def _repository(text: str) -> str | None:
    """`owner/model` where the text names one of the hub: by itself, or as the address of its page."""
    address = _HUB.match(text)
    path = text[address.end() :] if address else text
    if not address and _SCHEME.match(text):
        return None
    parts = path.split("?")[0].split("/")
    owned = _OWNED.fullmatch("/".join(parts[:2]).partition(":")[0].partition("@")[0])
    if owned is None or (len(parts) > 2 and not address) or os.sep + ".." in text:
        return None
    return f"{owned[1]}/{owned[2]}"
