"""Texts that a model writes itself, where nobody brings any: how it is asked for them."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from modelkit.pack.quality.text_file import Text
from modelkit.progress import Progress, Silent, bar
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.pack.model_setup import ModelSetup
    from runtime.loaded import LoadedModel


@dataclass(frozen=True, slots=True)
class TextWriter:
    """A model that writes texts of one length, ids drawn from its own distribution."""

    model: "LoadedModel"
    start: int
    """What each text begins with."""
    tokens: int
    """Of each text."""
    width: int
    """Ids below it are drawn."""
    never: Collection[int]
    """Of these, ids that are not drawn, as those that would end a text."""
    progress: Progress = Silent()
    label: str = ""
    """Of the bar."""

    def texts(self, count: int) -> list[Text]:
        """Of a model that goes on from what it wrote."""
        return self._write(count, None)

    def answers(self, prompts: Sequence[Text]) -> list[Text]:
        """Of a model whose prompts an encoder reads: one text for each. prompts: of one length."""
        return self._write(len(prompts), prompts)

    def _write(self, count: int, prompts: Sequence[Text] | None) -> list[Text]:
        import numpy as np

        from runtime.quality import own_text

        never = {one for one in self.never if one < self.width}
        never.update(range(self.width, self.model.vocab_size))
        sources = None if prompts is None else np.array(prompts, np.int32).reshape(count, -1)
        with bar(self.progress, self.label, count * (self.tokens - 1)):
            rows = own_text.write(
                self.model,
                self.start,
                count,
                self.tokens,
                never=never,
                sources=sources,
                advance=self.progress.advance,
            )
        return [tuple(row) for row in rows.tolist()]


def text_start(ready: "ModelSetup") -> int:
    """What texts begin with: the token that prompts begin with, else one that ends texts, as GPT-2 has it."""
    tokenizer = ready.tokenizer
    known = (tokenizer.bos_id, tokenizer.eos_id, *sorted(ready.stop_ids), 0)
    return next(one for one in known if one is not None)


def prompt_end(ready: "ModelSetup") -> int:
    """What prompts of an encoder end with."""
    known = (ready.tokenizer.eos_id, *sorted(ready.stop_ids), 0)
    return next(one for one in known if one is not None)
