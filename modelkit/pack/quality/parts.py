"""Target and draft of a package whose formats have to be found: decided anew, with the files that tell why.

What was found once is kept in the store's memo, so that a changed SYSTEM does not read the model again.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from modelkit.errors import StoreError
from modelkit.pack import checks
from modelkit.pack.conversion import Part, Progress, memo_key, recall, source_digests
from modelkit.pack.policy import Choice
from modelkit.pack.quality import reading
from modelkit.pack.quality.plot import picture
from modelkit.pack.quality.report import FILE, PICTURE
from modelkit.pack.quality.search import Found, replanned, search
from modelkit.store.canonical import canonical
from modelkit.store.store import Store
from runtime.quant import find_format

if TYPE_CHECKING:
    from modelkit.pack.ready import Ready

_REVISION = 1  # raise it when the same source and target begin to give other formats

Files = dict[str, bytes]


def find_formats(
    target: Part, draft: Part | None, ready: "Ready", store: Store, progress: Progress
) -> tuple[Part, Part | None, Files]:
    """The parts with plans of their own, and files of the package by path. Raises PlanError."""
    files: Files = {}
    if target.asked and target.asked.measures:
        target, files = _settled(target, ready, store, progress)
    if draft and draft.asked and draft.asked.measures:
        draft, more = _settled(draft, ready, store, progress)
        files |= {f"draft/{name}": data for name, data in more.items()}
    return target, draft, files


def _settled(part: Part, ready: "Ready", store: Store, progress: Progress) -> tuple[Part, Files]:
    assert part.asked is not None
    digests = source_digests(part.source, store)
    assert digests is not None
    key = _key(part, {name: str(digest) for name, digest in digests.items()}, ready)
    known = _recalled(store.memo_get(key))
    if known is None:
        found = search(part, part.asked, ready, progress)
        files = {FILE: found.report.to_bytes(), PICTURE: picture(found.report)}
        _keep(store, key, found, files)
        plan = found.plan
    else:
        choices, files = known
        plan = replace(replanned(part, choices), format=None)
    checks.check_tensors(part.source, plan)
    return replace(part, plan=plan, reused=recall(store, memo_key(digests, plan))), files


def _key(part: Part, digests: Mapping[str, str], ready: "Ready") -> str:
    """All that the search depends on."""
    asked = part.asked
    assert asked is not None
    text = asked.calibration.read_bytes() if asked.calibration else b""
    sizes = reading.SIZES
    value = {
        "revision": _REVISION,
        "mlx": version("mlx"),
        "sources": {name: digest.removeprefix("sha256:") for name, digest in digests.items()},
        "asked": str(asked),
        "role": part.plan.role,
        "text": hashlib.sha256(text).hexdigest(),
        "tokenizer": ready.tokenizer.fingerprint,
        "sizes": [sizes.calibration, sizes.held_out, sizes.tokens, sizes.steps, sizes.training],
    }
    return "formats:" + hashlib.sha256(canonical(value)).hexdigest()


def _keep(store: Store, key: str, found: Found, files: Files) -> None:
    rows = {
        name: [choice.format.name if choice.format else None, choice.reason]
        for name, choice in found.choices.items()
    }
    texts = {name: data.decode() for name, data in files.items()}
    with suppress(StoreError):
        store.memo_put(key, {"choices": rows, "files": texts})


def _recalled(value: Mapping[str, Any] | None) -> tuple[dict[str, Choice], Files] | None:
    rows, texts = (value.get("choices"), value.get("files")) if value else (None, None)
    if not isinstance(rows, dict) or not isinstance(texts, dict):
        return None
    choices = {
        str(name): Choice(find_format(row[0]) if row[0] else None, str(row[1])) for name, row in rows.items()
    }
    return choices, {str(name): str(text).encode() for name, text in texts.items()}
