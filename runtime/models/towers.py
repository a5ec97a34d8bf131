"""What a checkpoint of a multimodal model holds beside its text model, told by the beginnings of names."""

from runtime.records import dataclass

_WRAPPERS = (
    "model.language_model.",
    "model.text_model.",
    "model.llm.",
    "language_model.model.",
    "language_model.",
    "model.",
)


THINKER = "thinker."
"""Before the names of that one of Qwen's omni models that reads and writes text."""


def unwrapped(name: str) -> str:
    """A tensor's name without what wrappers put before the names of their parts."""
    name = name.removeprefix(THINKER)
    wrapper = next((one for one in _WRAPPERS if name.startswith(one)), "")
    return name.removeprefix(wrapper)


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
