"""What a checkpoint of a multimodal model holds beside its text model, and what the tensors of that one are
called without the wrapper. Told by the beginnings of names.
"""

from runtime.records import dataclass

THINKER = "thinker."
"""Before the names of that one of Qwen's omni models that reads and writes text."""

_WRAPPERS = (
    ("language_model.model.blocks.", "model.layers."),  # what transformers 5 makes of Kimi K2.5's
    ("model.language_model.", "model."),
    ("model.text_model.", "model."),
    ("model.llm.", "model."),
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("language_model.", "model."),  # what MLX makes of Idefics'
    ("text_model.model.", "model."),  # Emu3's
    ("text_model.lm_head.", "lm_head."),
)
_WRAPPED = tuple(wrapped for wrapped, _ in _WRAPPERS)


def text_name(name: str) -> str:
    """What a tensor of a wrapper is called in the text model by itself."""
    name = name.removeprefix(THINKER)
    if not name.startswith(_WRAPPED):  # most, and a load asks of every tensor several times
        return name
    for wrapped, plain in _WRAPPERS:
        if name.startswith(wrapped):
            return plain + name.removeprefix(wrapped)
    return name


def unwrapped(name: str) -> str:
    """A tensor's name without what wrappers and trunks put before the names of their parts."""
    return text_name(name).removeprefix("model.")


@dataclass(frozen=True, slots=True)
class Towers:
    """Beginnings of names, each up to its dot; what wrappers put before them does not count."""

    images: tuple[str, ...] = ()
    sound: tuple[str, ...] = ()
    projectors: tuple[str, ...] = ()
    """From a tower to the text model, where the name does not say which tower."""

    def sees(self, name: str) -> bool:
        return unwrapped(name).startswith(self.images)

    def hears(self, name: str) -> bool:
        return unwrapped(name).startswith(self.sound)

    def has(self, name: str) -> bool:
        """Is this tensor for images or sound?"""
        return unwrapped(name).startswith((*self.images, *self.sound, *self.projectors))


# What transformers' multimodal models call them.
USUAL = Towers(
    images=(
        "vision_tower.",
        "vision_model.",
        "vision_embedder.",
        "vision_encoder.",
        "visual.",
        "embed_vision.",
    ),
    sound=("audio_tower.", "embed_audio."),
    projectors=("multi_modal_projector.",),
)
