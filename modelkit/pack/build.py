"""Preparation -> package: weights, configs and the recipe become blobs, then the name is given.

All or nothing: until the last step nobody can see a change, and a failure or a kill leaves temporary files
at most. Equal sources and recipes give equal bytes, and so equal digests.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from modelkit.errors import StoreError
from modelkit.fetch.access import Access
from modelkit.modelfile import Quantizing, Recipe
from modelkit.pack import origins
from modelkit.pack.adapters.fusion_plan import key_of
from modelkit.pack.adapters.package_adapters import write_carried
from modelkit.pack.checks import architecture_of
from modelkit.pack.file_errors import worded
from modelkit.pack.metadata import FILE as METADATA
from modelkit.pack.metadata import Provenance
from modelkit.pack.part import CONFIG, Part
from modelkit.pack.planning.plan_types import Plan
from modelkit.pack.preparation import Preparation
from modelkit.pack.prepare import prepare
from modelkit.pack.writing.conversion import checking, remember, source_digests, write_weights
from modelkit.progress import Progress, Silent
from modelkit.source.shards import INDEX
from modelkit.store.artifact import build_artifact
from modelkit.store.digest import Blob, Digest
from modelkit.store.name import Name
from modelkit.store.store import Store
from modelkit.store.transaction import Transaction
from runtime.records import dataclass


@dataclass(frozen=True, slots=True, repr=False)
class Created:
    """A new package."""

    name: Name
    digest: Digest
    """Its manifest's, and so that of the whole content."""
    size_bytes: int
    """Of all its files."""
    converted: bool
    """Was any weight written anew?"""
    notes: tuple[str, ...]
    """Sentences for the user."""
    preparation: Preparation

    def __repr__(self) -> str:
        notes = f", {len(self.notes)} note{'s' if len(self.notes) > 1 else ''}" if self.notes else ""
        return f"<Created {self.name} {self.digest.short}, {self.size_bytes:,} bytes{notes}>"


def build(
    recipe: Recipe,
    name: Name,
    store: Store,
    *,
    quantize: str | Quantizing | None = None,
    quantize_draft: str | Quantizing | None = None,
    plain: bool = False,
    fuse_adapters: bool = False,
    progress: Progress | None = None,
    access: Access | None = None,
) -> Created:
    """Prepare and write.

    Raises what `prepare` does, and SourceError or StoreError when reading or writing fails.
    """
    prepared = prepare(
        recipe,
        store,
        quantize=quantize,
        quantize_draft=quantize_draft,
        plain=plain,
        fuse_adapters=fuse_adapters,
        access=access,
        progress=progress,
    )
    return write_package(prepared, name, store, progress)


def write_package(
    prepared: Preparation, name: Name, store: Store, progress: Progress | None = None
) -> Created:
    """Write what was prepared, and let `name` stand for it."""
    with worded():
        return _write_package(prepared, name, store, progress or Silent())


def _write_package(prepared: Preparation, name: Name, store: Store, progress: Progress) -> Created:
    written: dict[str, _Written] = {}
    files: dict[str, Blob] = {}
    with store.begin() as new:
        for folder, part in prepared.parts:
            _hold(part, new, progress)
            written[folder] = _write_part(part, new, store, progress)
            own = {**written[folder].files, **_add_files(part, new)}
            files.update({folder + path: blob for path, blob in own.items()})
        files.update({path: new.add_bytes(data) for path, data in prepared.texts.items()})
        facts = [*prepared.metadata.adapters]
        facts += prepared.target.fused.facts() if prepared.target.fused else ()
        for one in prepared.adapters:
            own, said = write_carried(one, prepared.target, new, store)
            files.update(own)
            facts.append(said)
        metadata = replace(
            prepared.metadata,
            adapters=tuple(facts),
            provenance=written[""].provenance,
            draft_provenance=written["draft/"].provenance if "draft/" in written else None,
        )
        files[METADATA] = new.add_bytes(metadata.to_bytes())
        artifact = build_artifact(files, **_facts(prepared))
        digest = new.commit(name, artifact)
    # From here on the package is there, whatever happens: the name may stand for another one already.
    for one in written.values():
        remember(store, one.key, one.weights)
    origins.remember(store, digest, prepared.origin)
    converted = any(one.converted for one in written.values())
    return Created(name, digest, artifact.size_bytes, converted, prepared.notes, prepared)


@dataclass(frozen=True, slots=True)
class _Written:
    weights: Mapping[str, Blob]
    files: Mapping[str, Blob]
    provenance: Provenance
    key: str
    converted: bool


def _hold(part: Part, new: Transaction, progress: Progress) -> None:
    """Keep the blobs of a stored source from being deleted while they are read, and make nothing of damaged
    ones: they would be given a new, right digest.
    """
    source = part.source
    for path, digest in source.known.items():
        if new.has(digest) is None:
            raise StoreError(
                f"{path.name[:12]} of {source.inventory.origin} was removed meanwhile",
                hint="Run the command again.",
            )
    weights = [(file.name, source.known.get(file.path)) for file in source.inventory.weights]
    known = [(name, digest) for name, digest in weights if digest]
    with checking(part, new, [digest for _, digest in known], progress) as advance:
        for name, digest in known:
            if new.sound(digest, advance) is None:
                raise StoreError(
                    f"{name} of {source.inventory.origin} is damaged (blob {digest.short})",
                    hint="Create that package again from its own source: that writes the file anew.",
                )


def _write_part(part: Part, new: Transaction, store: Store, progress: Progress) -> _Written:
    written = write_weights(part, new, store, progress)
    digests = written.sources or source_digests(part.source, store)
    assert digests is not None
    wanted = str(part.asked) if part.asked else None
    return _Written(
        weights=written.files,
        files={**written.files, INDEX: new.add_bytes(_index(part.plan))},
        provenance=part.inherited or Provenance(wanted, digests, part.source.upstream),
        key=key_of(digests, part),
        converted=part.plan.converts and written.sources is not None,
    )


def _index(plan: Plan) -> bytes:
    placed = {
        output.name: file.path for file in plan.files for tensor in file.tensors for output in tensor.outputs
    }
    return readable({"metadata": {"total_size": plan.nbytes}, "weight_map": dict(sorted(placed.items()))})


def _add_files(part: Part, new: Transaction) -> dict[str, Blob]:
    """Tokenizer, templates, licenses, configs as the source has them; config.json as the plan has it."""
    inventory = part.source.inventory
    added = {
        name: _add_file(part, name, path, new)
        for name, path in inventory.files.items()
        if name != CONFIG or part.plan.config == inventory.config
    }
    return added if CONFIG in added else {**added, CONFIG: new.add_bytes(readable(part.plan.config))}


def _add_file(part: Part, name: str, path: Path, new: Transaction) -> Blob:
    """A file of a folder has to be the one that was looked at; any other has its digest."""
    seen, expected = part.source.inventory.seen.get(name), part.source.expected(path)
    return new.add_file(path, expect=expected, same=seen.is_of if seen and not expected else None)


def readable(value: Mapping[str, Any]) -> bytes:
    """Readable, with one spelling; infinities in configs stay the bare words that Python's readers take."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def _facts(prepared: Preparation) -> dict[str, Any]:
    """ModelPack's description of the target."""
    plan, can = prepared.target.plan, prepared.capabilities
    family = plan.config.get("model_type")
    floats = [tensor.label for tensor in plan.tensors if tensor.label in ("bf16", "f16", "f32")]
    facts = {
        "architecture": architecture_of(plan.config),
        "format": "safetensors",
        "paramSize": _count(plan.elements),
        "precision": max(floats, key=floats.count) if floats else None,
        "quantization": plan.label if plan.quantized else None,
        "capabilities": {
            "inputTypes": ["text"],
            "outputTypes": ["text"],
            "reasoning": can is not None and can.thinking,
            "toolUsage": can is not None and can.tools,
        },
    }
    return {
        "descriptor": {"family": family} if isinstance(family, str) else {},
        "config": {key: value for key, value in facts.items() if value is not None},
    }


def _count(parameters: int) -> str:
    for unit, size in (("b", 10**9), ("m", 10**6), ("k", 10**3)):
        if parameters >= size:
            return f"{parameters / size:.3g}{unit}"
    return str(parameters)
