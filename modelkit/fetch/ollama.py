"""Ollama's packages: a manifest of Docker's second version; layers are a GGUF file and what belongs to it.

    application/vnd.ollama.image.model      the GGUF file; adapter, projector: further ones
    application/vnd.ollama.image.template   a Go template; system, license: plain texts
    application/vnd.ollama.image.params     JSON: parameter -> value, or a list of them
    application/vnd.ollama.image.messages   JSON: turns, `role` and `content`
    application/vnd.ollama.image.tensor     one tensor of a model in safetensors; json: one of its files

Ollama's registry and its store on a disk have the same manifests, so both are read here. Nothing is opened
or fetched: `read` gives the bytes of a small layer. Everything in a manifest is checked before it is used,
and digests are the only names that become paths. Whatever has no meaning here is said in a note, not lost.
"""

import json
from collections.abc import Callable
from typing import Any, Self

from modelkit.errors import FetchError, ModelfileError, ParameterError, StoreError
from modelkit.modelfile.parameter_table import MAX_STOPS, PARAMETERS
from modelkit.modelfile.parameters import parse_parameter
from modelkit.modelfile.syntax import Directive
from modelkit.store.canonical import parse_object
from modelkit.store.digest import Blob
from modelkit.store.manifest import LAYER_LIMIT, MANIFEST_LIMIT_BYTES, check_sizes, parse_descriptor
from runtime.quoting import quoted
from runtime.records import dataclass

LAYER_PREFIX = "application/vnd.ollama.image."
TEXT_LIMIT_BYTES = 1 << 20
_MOST_PARAMETERS = 256  # Ollama knows some forty; each other one becomes a note

_KINDS = (
    *("model", "adapter", "projector", "draft", "tensor"),
    *("template", "system", "license", "params", "messages", "json", "prompt"),
)

Read = Callable[[Blob], bytes]  # the bytes of a small layer, checked against its digest


@dataclass(frozen=True, slots=True)
class OllamaLayer:
    """One layer of a manifest."""

    kind: str
    """What its media type ends in: `model`, `template`."""
    blob: Blob


@dataclass(frozen=True, slots=True)
class OllamaManifest:
    """A checked manifest."""

    config: Blob
    layers: tuple[OllamaLayer, ...]

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Read an untrusted manifest. Raises StoreError for all that is not a model of Ollama's."""
        value = parse_object(raw, "the manifest", MANIFEST_LIMIT_BYTES)
        layers = value.get("layers")
        if value.get("schemaVersion") != 2 or not isinstance(layers, list):
            raise StoreError("this is not a manifest of schema version 2")
        if not 1 <= len(layers) <= LAYER_LIMIT:
            raise StoreError(f"a model has 1 to {LAYER_LIMIT} layers, not {len(layers)}")
        found = tuple(_layer(one) for one in layers)
        check_sizes(layer.blob for layer in found)
        return cls(parse_descriptor(value.get("config")), found)

    def all(self, kind: str) -> list[Blob]:
        """The layers of a kind, in their order."""
        return [layer.blob for layer in self.layers if layer.kind == kind]

    def texts(self) -> list[Blob]:
        """The small layers that `belongings` reads."""
        return [layer.blob for layer in self.layers if layer.kind in _READERS]

    def adapters(self) -> dict[str, Blob]:
        """Adapters in GGUF by the names that they get, which Ollama keeps none of, in their order."""
        return {f"adapter-{number}": blob for number, blob in enumerate(self.all("adapter"), 1)}

    def gguf(self, label: str) -> Blob:
        """The GGUF file of the package that messages call `label`. Raises FetchError where there is none, or
        more than one.

        Packages of single tensors have no chat template, which Ollama leaves out when it makes them.
        """
        found, parts = self.all("model"), [*self.all("tensor"), *self.all("json")]
        if self.all("tensor") or (parts and not found):
            raise FetchError(
                f"{label} is one of Ollama's packages for MLX, in which each tensor is a layer; only its "
                "GGUF packages are read",
                hint="Take the model that it was made of: modelkit pull hf.co/OWNER/MODEL. Or a tag of it\n"
                "in GGUF, which has no `mlx` in its name.",
            )
        if len(found) != 1:
            raise FetchError(
                f"{label} has {len(found)} layers with a model; exactly one is read here",
                hint="A model that runs elsewhere only (`:cloud`) has none." if not found else None,
            )
        return found[0]


@dataclass(frozen=True, slots=True)
class Belongings:
    """What a Modelfile says beside FROM for such a package; its adapters come with the model."""

    directives: tuple[Directive, ...]
    notes: tuple[str, ...]
    """What has no meaning here, in sentences for the user."""


def belongings(manifest: OllamaManifest, read: Read) -> Belongings:
    """Parameters, system text, turns, licences and the template.

    Raises FetchError where a layer is not what its kind promises.
    """
    made, notes = list[Directive](), list[str]()
    for layer in manifest.layers:
        if layer.kind in _READERS:
            if layer.blob.size_bytes > TEXT_LIMIT_BYTES:
                raise FetchError(
                    f"the {layer.kind} of the package has {layer.blob.size_bytes:,} bytes, at most"
                    f" {TEXT_LIMIT_BYTES:,} are expected"
                )
            _READERS[layer.kind](_text(layer.kind, read(layer.blob)), made, notes)
        elif layer.kind == "projector":
            notes.append("its projector is left out: images are not read here, text is")
        elif layer.kind not in ("model", "adapter"):
            notes.append(f"its {layer.kind} is left out: it has no meaning here")
    kept = _once(_few_stops(made, notes))
    return Belongings(tuple(kept), tuple(dict.fromkeys(notes)))


def _layer(value: object) -> OllamaLayer:
    blob = parse_descriptor(value)
    media_type: Any = value.get("mediaType") if isinstance(value, dict) else None
    kind = media_type.removeprefix(LAYER_PREFIX) if isinstance(media_type, str) else ""
    if kind == media_type or kind not in _KINDS:
        raise StoreError(f"a layer of the kind {quoted(media_type)} is not one of Ollama's")
    return OllamaLayer(kind, blob)


def _text(kind: str, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise FetchError(f"the {kind} of the package is not UTF-8 text") from error


def _json(kind: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FetchError(f"the {kind} of the package are not valid JSON") from error


def _add(made: list[Directive], notes: list[str], keyword: str, value: str, name: str | None = None) -> None:
    """A directive, or a note where no Modelfile can hold it."""
    try:
        made.append(Directive(keyword, value, name=name))
    except ModelfileError as error:
        notes.append(f"its {keyword} is left out: {error.message.partition(': ')[2]}")


def _template(text: str, made: list[Directive], notes: list[str]) -> None:
    """In Go's language or in jinja; whether it is needed is seen where the model's own files are."""
    _add(made, notes, "TEMPLATE", text)


def _system(text: str, made: list[Directive], notes: list[str]) -> None:
    _add(made, notes, "SYSTEM", text)


def _license(text: str, made: list[Directive], notes: list[str]) -> None:
    if text.strip():
        _add(made, notes, "LICENSE", text)


def _params(text: str, made: list[Directive], notes: list[str]) -> None:
    value = _json("params", text)
    if not isinstance(value, dict):
        raise FetchError("the params of the package are not a JSON object")
    if len(value) > _MOST_PARAMETERS:
        raise FetchError(f"the params of the package have {len(value):,} names, at most {_MOST_PARAMETERS}")
    for name, given in value.items():
        for one in given if isinstance(given, list) else [given]:
            spelled = one if isinstance(one, str) else json.dumps(one)
            try:
                parse_parameter(str(name), spelled)
            except ParameterError as error:
                notes.append(f"its parameter {quoted(name)} is left out: {error.message}")
            else:
                _add(made, notes, "PARAMETER", spelled, str(name))


def _messages(text: str, made: list[Directive], notes: list[str]) -> None:
    value = _json("messages", text)
    if not isinstance(value, list):
        raise FetchError("the messages of the package are not a JSON list")
    for turn in value:
        role, content = (turn.get("role"), turn.get("content")) if isinstance(turn, dict) else (None, None)
        if not isinstance(role, str) or not isinstance(content, str):
            raise FetchError("a message of the package has no role or no content")
        _add(made, notes, "MESSAGE", content, role)


def _once(made: list[Directive]) -> list[Directive]:
    """Without a second SYSTEM, TEMPLATE or value of a parameter that has one: the last counts in Ollama."""
    last = {(one.keyword, one.name): place for place, one in enumerate(made)}
    return [one for place, one in enumerate(made) if _adds_up(one) or last[one.keyword, one.name] == place]


def _adds_up(one: Directive) -> bool:
    if one.keyword == "PARAMETER":
        return PARAMETERS[one.name or ""].repeats
    return one.keyword not in ("SYSTEM", "TEMPLATE")


def _few_stops(made: list[Directive], notes: list[str]) -> list[Directive]:
    """With no more stop strings than a package can have."""
    stops = [place for place, one in enumerate(made) if (one.keyword, one.name) == ("PARAMETER", "stop")]
    spare = {*stops[MAX_STOPS:]}
    if spare:
        notes.append(f"of its {len(stops):,} stop strings the first {MAX_STOPS} are kept")
    return [one for place, one in enumerate(made) if place not in spare]


_READERS: dict[str, Callable[[str, list[Directive], list[str]], None]] = {
    "template": _template,
    "system": _system,
    "license": _license,
    "params": _params,
    "messages": _messages,
}
