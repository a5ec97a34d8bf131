"""What one architecture file offers, and how a config finds its file.

A family is one module in this folder with four names (see `Architecture`). `ARCHITECTURES` maps what
config.json says in `architectures` or `model_type` to the module. The text of a config only ever selects a
row of this table; it never names code to import.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from runtime.cache.layout import LayerSpec
from runtime.errors import UnsupportedModel

if TYPE_CHECKING:
    import mlx.core as mx

    from runtime.step import Step


class Network(Protocol):
    """The modules of a model: an `mlx.nn.Module` with these two calls.

    B rows, L tokens, D hidden size, V vocabulary. `caches` holds one entry per layer of the layout, None
    where a layer remembers nothing.
    """

    def __call__(self, tokens: "mx.array", step: "Step", caches: Sequence[Any]) -> "mx.array":
        """int32 [B, L] -> the last layer's normed hidden states [B, L, D]."""
        ...

    def logits(self, hidden: "mx.array") -> "mx.array":
        """[..., D] -> [..., V]."""
        ...


class Config(Protocol):
    """What every family's frozen config can say; the rest is the family's own."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def context_length(self) -> int: ...


class Architecture(Protocol):
    """The four names that a module of this folder defines."""

    def parse(self, raw: Mapping[str, Any]) -> Any:
        """config.json -> the family's frozen Config; UnsupportedModel for a value it would compute
        wrongly.
        """
        ...

    def layout(self, config: Any) -> list[LayerSpec]:
        """What each layer remembers, one entry per layer."""
        ...

    def build(self, config: Any) -> Any:
        """Modules with lazy (unallocated) weights, named as the tensors of the checkpoint."""
        ...

    def adapt(self, config: Any, weights: "dict[str, mx.array]") -> "dict[str, mx.array]":
        """Checkpoint names and layouts -> those of `build`. Lazy: no array is evaluated."""
        ...


_LLAMA = "runtime.models.llama"

ARCHITECTURES: dict[str, str] = {
    "LlamaForCausalLM": _LLAMA,
    "MistralForCausalLM": _LLAMA,
    "Qwen2ForCausalLM": _LLAMA,
    "Qwen3ForCausalLM": _LLAMA,
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
}


@dataclass(frozen=True, slots=True)
class Described:
    """A config understood: its architecture, parsed config and layout. Nothing is allocated for it."""

    name: str
    architecture: Architecture
    config: Any
    layout: tuple[LayerSpec, ...]

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def hidden_size(self) -> int:
        return self.config.hidden_size

    @property
    def context_length(self) -> int:
        return self.config.context_length


def architecture_name(raw: Mapping[str, Any]) -> str:
    """What the config calls itself: `architectures[0]`, else `model_type`, else "(none named)"."""
    listed = raw.get("architectures")
    if isinstance(listed, list) and listed and isinstance(listed[0], str):
        return listed[0]
    kind = raw.get("model_type")
    return kind if isinstance(kind, str) else "(none named)"


def find_architecture(raw: Mapping[str, Any]) -> Architecture:
    """The module that runs this config, or UnsupportedModel naming what the config asked for."""
    name = architecture_name(raw)
    module = ARCHITECTURES.get(name)
    if module is None and "architectures" not in raw:
        module = ARCHITECTURES.get(str(raw.get("model_type")))
    if module is None:
        known = ", ".join(sorted(key for key in ARCHITECTURES if key[0].isupper()))
        raise UnsupportedModel(f"the architecture {name!r:.120} is not supported; supported: {known}")
    return import_module(module)  # pyright: ignore[reportReturnType] -- modules satisfy the protocol by their functions


def describe(raw: Mapping[str, Any]) -> Described:
    """Parse a config and lay out its memory; UnsupportedModel when it cannot be run right."""
    architecture = find_architecture(raw)
    config = architecture.parse(raw)
    return Described(architecture_name(raw), architecture, config, tuple(architecture.layout(config)))
