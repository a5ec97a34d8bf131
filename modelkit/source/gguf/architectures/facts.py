"""What the rules ask about a model: its config, flat, as transformers' files spell it."""

from collections.abc import Mapping
from typing import Any

from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """A text model's config."""

    config: Mapping[str, Any]
    less_one: bool = False
    """Of a checkpoint with filters: are they as published, [channels, 1, taps], and norms less one?"""

    def get(self, *names: str, default: Any = None) -> Any:
        """The first of these fields that is there and not null."""
        for name in names:
            value = self.config.get(name)
            if value is not None:
                return value
        return default

    def count(self, *names: str, default: int = 0) -> int:
        value = self.get(*names, default=default)
        return value if type(value) is int else default

    @property
    def layers(self) -> int:
        listed = self.get("layers_block_type", "hybrid_override_pattern", default=())
        return self.count("num_hidden_layers", "n_layer", "num_layers", "n_layers", default=len(listed))

    @property
    def hidden(self) -> int:
        return self.count("hidden_size", "n_embd", "d_model")

    @property
    def heads(self) -> int:
        return self.count("num_attention_heads", "n_head", "n_heads", default=1)

    @property
    def kv_heads(self) -> int:
        return self.count("num_key_value_heads", default=self.heads)

    @property
    def head_dim(self) -> int:
        return self.count("head_dim", default=self.hidden // self.heads if self.heads else 0)
