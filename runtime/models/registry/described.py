"""How a config finds its family, and what follows from both before anything is allocated."""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from runtime.cache.layout import LayerSpec, Rotating, Stateless
from runtime.config.document import check_document, refuse_both_ways
from runtime.config.fields import completed
from runtime.config.spellings import one_spelling
from runtime.config.text import text_config
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.models.family.headless import headless
from runtime.models.registry.names import (
    ARCHITECTURES,
    HEADLESS,
    KIN,
    WELL_KNOWN,
    architecture_name,
    by_both_names,
    module_name,
)
from runtime.models.registry.refused import REFUSED
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.tensors.checkpoint import PLAIN, Checkpoint


@dataclass(frozen=True, slots=True)
class Described:
    """A config understood: its family, parsed config and layout. Nothing is allocated for it."""

    name: str
    """The architecture that the config names."""
    family: Family
    """What runs it."""
    config: Any
    """The family's own Config."""
    layout: tuple[LayerSpec, ...]
    """What each layer remembers."""
    checkpoint: Checkpoint = PLAIN
    """What is particular to its files."""

    def network(self) -> Any:
        """A Network with lazy (unallocated) weights, named as the tensors of the checkpoint."""
        from runtime.nn.weights.build_network import build_network

        return build_network(self.family.build, self.config)

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def hidden_size(self) -> int:
        return self.config.hidden_size

    @property
    def context_length(self) -> int:
        return self.config.context_length

    @property
    def start_id(self) -> int | None:
        """What answers begin with where an encoder reads the prompt; None where answers go on from it."""
        return None if self.family.start_id is None else self.family.start_id(self.config)

    @property
    def writes(self) -> bool:
        """Are its answers text? False: it makes embeddings and nothing else."""
        return self.family.writes

    @property
    def looks_ahead(self) -> bool:
        """Does every token see those behind it, so that a text is read whole or not at all?"""
        return not self.writes and all(isinstance(spec, Stateless) for spec in self.layout)


def find_family(raw: Mapping[str, Any]) -> Family:
    """The family that runs this config, or UnsupportedModel naming what the config asked for."""
    _refuse_two_names(raw)
    module = module_name(raw)
    if module is None or str(raw.get("model_type")) in REFUSED:
        raise _not_run(raw)
    family = _family_in(module)
    variant = None if family.variant is None else family.variant(raw)
    if variant is not None:
        return _family_in(variant) if isinstance(variant, str) else variant
    if family.both_ways and raw.get("is_causal") is False:
        from runtime.models.family.both_ways import looking_ahead  # loads MLX

        return looking_ahead(family)
    return headless(family) if architecture_name(raw) in HEADLESS.values() else family


def _family_in(module: str) -> Family:
    return import_module(f"runtime.models.{module}").FAMILY


def whole_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The text model's fields, with what its family takes for those that the file leaves out."""
    return completed(find_family(raw).parse, raw)


def _refuse_no_window(raw: Mapping[str, Any], layout: tuple[LayerSpec, ...]) -> None:
    """An explicit null is not a window, and layers that have one have the family's: transformers refuses
    it.
    """
    said = one_spelling(text_config(raw))
    if said.get("sliding_window", 0) is None and any(isinstance(spec, Rotating) for spec in layout):
        raise UnsupportedModel("config.json: sliding_window is null, and some of the layers have a window")


def _refuse_two_names(raw: Mapping[str, Any]) -> None:
    """transformers goes by model_type, others by architectures: which one counts must not matter. A block
    draft calls itself after the class of its layers.
    """
    by_name, by_kind = by_both_names(raw)
    if by_kind is not None and by_name not in (None, by_kind, "dflash") and (by_name, by_kind) != KIN:
        raise UnsupportedModel(
            f"config.json: architectures says {quoted(architecture_name(raw))} and model_type "
            f"{quoted(raw['model_type'])}, which are computed differently; one of them is wrong"
        )


def _not_run(raw: Mapping[str, Any]) -> UnsupportedModel:
    """What is said of a config that no row of the names has, or that one of REFUSED has."""
    name, kind = architecture_name(raw), raw.get("model_type")
    reason = REFUSED.get(name) or REFUSED.get(str(kind))
    if reason is not None:
        return UnsupportedModel(f"the architecture {quoted(name)} is known and not run: {reason}")
    known = [key for key in ARCHITECTURES if key[0].isupper() or name == kind]
    near = ", ".join(get_close_matches(name[:80], known, 3, 0.4)) or ", ".join(WELL_KNOWN)
    what = "" if kind in (None, name) else f", a model of type {quoted(kind)},"
    why = f": only other classes of {kind} are" if str(kind) in ARCHITECTURES else ""
    own = any(raw.get(field) for field in ("auto_map", "model_file"))
    code = "; code that comes with a model is never run" if own else ""
    return UnsupportedModel(
        f"the architecture {quoted(name)}{what} is not supported{why}; docs/models.md lists what is, as "
        f"{near}{code}"
    )


def describe(raw: Mapping[str, Any]) -> Described:
    """Parse a config and lay out its memory; UnsupportedModel when it cannot be run right."""
    check_document(raw)
    family = find_family(raw)
    config = family.parse(raw)
    files, layout = family.checkpoint(text_config(raw)), tuple(family.layout(config))
    if family.drafts_as != "block":  # whose window has a field of its own
        _refuse_no_window(raw, layout)
    described = Described(architecture_name(raw), family, config, layout, files)
    if not described.looks_ahead:
        refuse_both_ways(raw)
    return described
