"""Languages of a translator: how a request says them, and where their tokens go.

A language is a token. NLLB's, M2M100's and mBART's stand in the prompt's frame for what is read, before the
text (mBART's first: behind it), and begin the answer for what is written: as its first id where the authors'
own first id is a language (mBART's first), else as its second. Marian's models with several targets want the
one to write in front of the prompt (`>>fra<<`), and are told of no source.

A code is what users say: the token without its marks, `eng_Latn`, `en_XX`, `en` for `__en__`, `fra` for
`>>fra<<`.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Literal

from modelkit.errors import RequestError
from modelkit.tokenizer import Tokenizer
from runtime.records import dataclass

Ids = tuple[int, ...]

_CODE = re.compile(r"__([a-z]{2,3})__|([a-z]{2,3}_[A-Z][A-Za-z]{1,3})")
_TARGET = re.compile(r">>([A-Za-z_-]{2,24})<<")
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Languages:
    ids: Mapping[str, int]
    """The token of each, by its code."""
    place: Literal["first", "last"] | None
    """Where in a prompt that of what is read stands; None: nowhere."""
    target: Literal["prompt", "start", "second"]
    """Where that of what is written goes: before the prompt, in the place of the answer's first id, or behind
    that.
    """

    def spoken(self, prompt: Ids, beginning: Ids, source: str | None, target: str | None) -> tuple[Ids, Ids]:
        """A prompt, and what its answer begins with, between these languages; None: as they are. Raises
        RequestError.
        """
        if source is not None:
            prompt = self._read_as(prompt, self.token_of("source_language", source))
        if target is None:
            return prompt, beginning
        one = self.token_of("target_language", target)
        if self.target == "prompt":
            own = prompt[1:] if prompt and prompt[0] in self.ids.values() else prompt
            return (one, *own), beginning
        return prompt, (one,) if self.target == "start" else (beginning[0], one)

    def token_of(self, name: str, code: str) -> int:
        """The token of a language that the parameter `name` asks for. Raises RequestError where there is
        none, or where the model is told of none.
        """
        if name == "source_language" and self.place is None:
            raise RequestError(
                "source_language has no effect: the model's prompts do not say which language they are in",
                hint="Leave it out.",
            )
        found = self.ids.get(code)
        if found is None:
            near = difflib.get_close_matches(code, self.ids, n=_SHOWN, cutoff=0.3) or [*self.ids][:_SHOWN]
            raise RequestError(
                f"{name} is {code}, which is none of the model's {len(self.ids):,} languages",
                hint=f"Among them are {', '.join(near)}.",
            )
        return found

    def _read_as(self, prompt: Ids, one: int) -> Ids:
        at = 0 if self.place == "first" else len(prompt) - 1
        if not prompt or prompt[at] not in self.ids.values():
            where = "first" if self.place == "first" else "last"
            raise RequestError(
                f"source_language has no effect: the prompt's {where} token is not a language",
                hint="Write the language's token there, or give the prompt as a text without a template.",
            )
        return (*prompt[:at], one, *prompt[at + 1 :])


def read_languages(tokenizer: Tokenizer, start: int | None) -> Languages | None:
    """start: the id that answers begin with, None for a model without an encoder. None: no translator."""
    if start is None:
        return None
    added = sorted((one, token.content) for one, token in tokenizer.added.items())
    ids = {found[1] or found[2]: one for one, text in added if (found := _CODE.fullmatch(text))}
    if not ids:
        targets = {found[1]: one for one, text in added if (found := _TARGET.fullmatch(text))}
        return Languages(targets, None, "prompt") if targets else None
    frame, known = tokenizer.encode("", add_special=True), {*ids.values()}
    place = "first" if frame[:1] and frame[0] in known else "last" if frame and frame[-1] in known else None
    return Languages(ids, place, "start" if start in known else "second")


def no_languages(name: str) -> RequestError:
    return RequestError(
        f"{name} has no effect: the model's vocabulary has no tokens of languages", hint="Leave it out."
    )
