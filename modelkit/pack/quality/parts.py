"""Target and draft of a package whose formats have to be found: decided anew, with the files that tell why.

What was found once is kept in the store's memo, so that a changed SYSTEM does not read the model again.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelkit.errors import StoreError
from modelkit.pack import checks
from modelkit.pack.formats import at_line
from modelkit.pack.part import Part
from modelkit.pack.planning.plan_types import Plan, Tuned
from modelkit.pack.planning.policy import Choice
from modelkit.pack.quality import reading
from modelkit.pack.quality.drafts import fastest
from modelkit.pack.quality.plot import picture
from modelkit.pack.quality.report import FILE, PICTURE
from modelkit.pack.quality.search import Found, replanned, search, tune_formats
from modelkit.pack.writing.conversion import memo_key, recall, source_digests
from modelkit.pack.writing.tuning import plan_with
from modelkit.progress import Progress
from modelkit.store.canonical import canonical
from modelkit.store.store import Store
from runtime.quant import find_format
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.pack.model_setup import ModelSetup

_REVISION = 3  # raise it when the same source and target begin to give other formats

Files = dict[str, bytes]


def find_formats(
    target: Part, draft: Part | None, ready: "ModelSetup", store: Store, progress: Progress
) -> tuple[Part, Part | None, Files]:
    """The parts with plans of their own, and files of the package by path. Raises PlanError."""
    files: Files = {}
    if target.asked and target.asked.measures:
        target, files = _settled(target, None, ready, store, progress)
    if draft and draft.asked and draft.asked.measures:
        draft, more = _settled(draft, target, ready, store, progress)
        files |= {f"draft/{name}": data for name, data in more.items()}
    return target, draft, files


def _settled(
    part: Part, target: Part | None, ready: "ModelSetup", store: Store, progress: Progress
) -> tuple[Part, Files]:
    """target: a draft's."""
    with at_line(part.asked):
        return _settled_here(part, target, ready, store, progress)


def _settled_here(
    part: Part, target: Part | None, ready: "ModelSetup", store: Store, progress: Progress
) -> tuple[Part, Files]:
    digests = source_digests(part.source, store)
    assert digests is not None
    key = _key(part, target, _sources(part, target, store), ready)
    known = _recalled(store.memo_get(key))
    if known is not None:
        plan = _planned(part, known)
        reused = recall(store, memo_key(digests, plan))
        if reused is not None or not known.tuned:
            return replace(part, plan=plan, reused=reused), known.files
    found = _find(part, target, ready, progress)
    files = {FILE: found.report.to_bytes(), PICTURE: picture(found.report)}
    _keep(store, key, found, files)
    checks.check_tensors(part.source, found.plan)
    return replace(part, plan=found.plan, reused=recall(store, memo_key(digests, found.plan))), files


def _find(part: Part, target: Part | None, ready: "ModelSetup", progress: Progress) -> Found:
    assert part.asked is not None
    if part.asked.auto:
        assert target is not None
        return fastest(part, target, part.asked, ready, progress)
    if part.asked.searches:
        return search(part, part.asked, ready, progress)
    return tune_formats(part, part.asked, ready, progress)


def _sources(part: Part, target: Part | None, store: Store) -> dict[str, str]:
    """The digests that a search depends on; one for a draft's speed, on its target's too, and its size."""
    found = {name: str(digest) for name, digest in (source_digests(part.source, store) or {}).items()}
    if target is not None and part.asked and part.asked.auto:
        for name, digest in (source_digests(target.source, store) or {}).items():
            found[f"target/{name}"] = str(digest)
        found["target"] = str(target.plan.nbytes)
    return found


@dataclass(frozen=True, slots=True)
class _Known:
    """What an earlier search found. Of what was tuned, only the digests: the files that have it are in the
    store, or it is found again.
    """

    choices: Mapping[str, Choice]
    tuned: Mapping[str, Tuned]
    files: Files


def _planned(part: Part, known: _Known) -> Plan:
    plan = replace(replanned(part, known.choices), format=None) if known.choices else part.plan
    return plan_with(plan, known.tuned)


def _key(part: Part, target: Part | None, digests: Mapping[str, str], ready: "ModelSetup") -> str:
    """All that the search depends on."""
    asked = part.asked
    assert asked is not None
    sizes = reading.SIZES
    value = {
        "revision": _REVISION,
        "mlx": version("mlx"),
        "sources": {name: digest.removeprefix("sha256:") for name, digest in digests.items()},
        "asked": str(asked),
        "role": part.plan.role,
        "configs": [_spelled(part.plan), *([_spelled(target.plan)] if target and asked.auto else ())],
        "text": _digest_of(asked.calibration),
        "tokenizer": ready.tokenizer.fingerprint,
        **_vectors(part, ready),
        "never": sorted({*ready.stop_ids, *ready.suppressed}),
        "sizes": [sizes.calibration, sizes.held_out, sizes.tokens, sizes.steps, sizes.training],
    }
    return "formats:" + hashlib.sha256(canonical(value)).hexdigest()


def _spelled(plan: Plan) -> str:
    """Its config, which may hold infinities (Mamba 2's `time_step_limit`)."""
    return json.dumps(plan.config, sort_keys=True)


def _vectors(part: Part, ready: "ModelSetup") -> dict[str, Any]:
    """What a model's vectors depend on besides; {} for one that writes."""
    from runtime.models import describe

    if describe(part.plan.config).writes:
        return {}
    pooling = ready.pooling
    dense = [_digest_of(one.weight.path) for one in pooling.dense]
    return {"pooling": [pooling.description, pooling.lower, pooling.most_tokens or 0, dense]}


def _digest_of(text: Path | None) -> str | None:
    """Of a file's bytes; None where there is no file, which an empty one is not."""
    if text is None:
        return None
    with text.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _keep(store: Store, key: str, found: Found, files: Files) -> None:
    rows = {
        name: [choice.format.name if choice.format else None, choice.reason]
        for name, choice in found.choices.items()
    }
    texts = {name: data.decode() for name, data in files.items()}
    tuned = {name: one.digest for name, one in found.tuned.items()}
    with suppress(StoreError):
        store.memo_put(key, {"choices": rows, "tuned": tuned, "files": texts})


def _recalled(value: Mapping[str, Any] | None) -> _Known | None:
    rows, tuned, texts = (value.get(key) for key in ("choices", "tuned", "files")) if value else (None,) * 3
    if not isinstance(rows, dict) or not isinstance(tuned, dict) or not isinstance(texts, dict):
        return None
    return _Known(
        {
            str(name): Choice(find_format(row[0]) if row[0] else None, str(row[1]))
            for name, row in rows.items()
        },
        {str(name): Tuned(str(digest)) for name, digest in tuned.items()},
        {str(name): str(text).encode() for name, text in texts.items()},
    )
