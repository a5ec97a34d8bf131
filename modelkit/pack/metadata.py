"""modelkit.json: what a Modelfile adds to a model, and where the weights came from.

Canonical JSON without times and paths, so that the same recipe gives the same bytes. A package that was
made by another tool has none; it reads as an empty recipe. Reading trusts nothing: every value is checked.
"""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from modelkit.errors import ModelkitError, StoreError
from modelkit.fetch.upstream import Upstream, read_upstream
from modelkit.modelfile import ROLES, Parameters
from modelkit.source.strict_json import read_json
from modelkit.store.canonical import canonical
from modelkit.store.digest import Digest
from runtime.quoting import quoted
from runtime.records import dataclass

FILE = "modelkit.json"
DRAFT_FOLDER = "draft"
"""In a package, or in an exported one."""
VERSION = 1


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where one model's weights came from."""

    format: str | None
    """What was asked for, in the words of QUANTIZE; None: as they were."""
    sources: Mapping[str, Digest]
    """The digests of the source files, by name."""
    upstream: Upstream | None = None
    """Where those files were fetched from; None: a folder or a file said nothing of that."""

    def to_json(self) -> dict[str, Any]:
        value = {
            "format": self.format,
            "sources": {name: str(digest) for name, digest in sorted(self.sources.items())},
        }
        return {**value, "upstream": self.upstream.to_json()} if self.upstream else value


@dataclass(frozen=True, slots=True)
class DraftFacts:
    """How the draft in `draft/` is run."""

    architecture: str
    kind: str = "model"
    """"model": a language model of its own."""


@dataclass(frozen=True, slots=True)
class AdapterFacts:
    """Where an adapter came from."""

    name: str
    kind: str
    """"peft", "mlx-lm" or "gguf"."""
    base: str | None
    """What it says it was trained on."""
    sources: Mapping[str, Digest]
    """The digests of its files, by name."""
    fused: bool = False
    """Is it in the weights, and no adapter any more?"""

    def to_json(self) -> dict[str, Any]:
        value = {
            "name": self.name,
            "kind": self.kind,
            "base": self.base,
            "sources": {name: str(digest) for name, digest in sorted(self.sources.items())},
            "fused": self.fused,
        }
        return {key: item for key, item in value.items() if item}


@dataclass(frozen=True, slots=True)
class Metadata:
    """The content of modelkit.json. None and empty: not said."""

    parameters: Parameters = field(default_factory=Parameters)
    system: str | None = None
    messages: tuple[tuple[str, str], ...] = ()
    """Role and text of each."""
    own_template: bool = False
    """Is chat_template.jinja the Modelfile's, not the source's?"""
    renderer: str | None = None
    parser: str | None = None
    requires: str | None = None
    """The oldest modelkit that can run the package."""
    draft: DraftFacts | None = None
    adapters: tuple[AdapterFacts, ...] = ()
    """In the order in which they were named."""
    provenance: Provenance | None = None
    draft_provenance: Provenance | None = None

    def to_bytes(self) -> bytes:
        draft = self.draft and {"architecture": self.draft.architecture, "kind": self.draft.kind}
        value: dict[str, Any] = {
            "version": VERSION,
            "parameters": self.parameters.to_json(),
            "system": self.system,
            "messages": [{"role": role, "content": content} for role, content in self.messages],
            "template": "modelfile" if self.own_template else "source",
            "renderer": self.renderer,
            "parser": self.parser,
            "requires": self.requires,
            "draft": draft,
            "adapters": [one.to_json() for one in self.adapters],
            "provenance": {
                name: made.to_json()
                for name, made in (("target", self.provenance), ("draft", self.draft_provenance))
                if made
            },
        }
        return canonical({key: item for key, item in value.items() if item not in (None, {}, [])})


def read_metadata(path: Path | None, label: str) -> Metadata:
    """The metadata in a package's modelkit.json at `path`; an empty one for None. Raises StoreError."""
    if path is None:
        return Metadata()
    try:
        value = read_json(path, label=f"{label}/{FILE}")
        return _parse(value)
    except (ModelkitError, ValueError) as error:
        why = error.message if isinstance(error, ModelkitError) else str(error)
        raise StoreError(
            f"{label}/{FILE} cannot be used: {why}",
            hint="Create the package again from its sources.",
        ) from error


def _parse(value: Mapping[str, Any]) -> Metadata:
    if value.get("version") != VERSION:
        raise ValueError(f"it is of version {quoted(value.get('version'))}; this modelkit reads {VERSION}")
    made = _object(value.get("provenance", {}), "provenance")
    messages = value.get("messages", [])
    if not isinstance(messages, list):
        raise ValueError("`messages` is not a list")
    return Metadata(
        parameters=Parameters.from_json(value.get("parameters", {})),
        system=_text(value, "system"),
        messages=tuple(_message(_object(message, "messages")) for message in messages),
        own_template=value.get("template") == "modelfile",
        renderer=_text(value, "renderer"),
        parser=_text(value, "parser"),
        requires=_text(value, "requires"),
        draft=_draft(_object(value["draft"], "draft")) if "draft" in value else None,
        adapters=_adapters(value.get("adapters", [])),
        provenance=_provenance(_object(made["target"], "target")) if "target" in made else None,
        draft_provenance=_provenance(_object(made["draft"], "draft")) if "draft" in made else None,
    )


def _object(value: object, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"`{key}` holds what is not an object")
    return value


def _text(value: Mapping[str, Any], key: str) -> str | None:
    found = value.get(key)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"`{key}` is not text")
    return found


def _need(value: Mapping[str, Any], key: str) -> str:
    found = _text(value, key)
    if found is None:
        raise ValueError(f"`{key}` is missing")
    return found


def _draft(value: Mapping[str, Any]) -> DraftFacts:
    return DraftFacts(_need(value, "architecture"), _need(value, "kind"))


def _message(value: Mapping[str, Any]) -> tuple[str, str]:
    role = _need(value, "role")
    if role not in ROLES:
        raise ValueError(f"a message has the role {quoted(role)}")
    return role, _need(value, "content")


def _adapters(value: object) -> tuple[AdapterFacts, ...]:
    if not isinstance(value, list):
        raise ValueError("`adapters` is not a list")
    rows = [_object(one, "adapters") for one in value]
    return tuple(
        AdapterFacts(
            name=_need(one, "name"),
            kind=_text(one, "kind") or "",
            base=_text(one, "base"),
            sources={
                name: Digest.parse(digest)
                for name, digest in _object(one.get("sources", {}), "sources").items()
            },
            fused=one.get("fused") is True,
        )
        for one in rows
    )


def _provenance(value: Mapping[str, Any]) -> Provenance:
    sources = _object(value.get("sources"), "sources")
    digests = {name: Digest.parse(digest) for name, digest in sources.items()}
    upstream = read_upstream(value["upstream"]) if "upstream" in value else None
    return Provenance(_text(value, "format"), digests, upstream)
