"""Everything modelkit raises on purpose. A user sees one of these as one clear line, never a traceback.

ModelkitError                where · what is · what was expected · what to do
├── ModelfileError           a place in a Modelfile: file, line, column
├── ParameterError           a PARAMETER or option with a bad name or value
├── InvalidName              text that is not a model name
├── ModelNotFound            no such model in the store
├── SourceError              a model directory or file that cannot be imported as it is
│   ├── MalformedFile        bytes that break their format's rules
│   └── UnsupportedSource    sound, but of a kind modelkit does not import (names it)
├── PlanError                a create that was refused before the first byte was written
├── FetchError               what cannot be fetched: not there, not allowed, no network, not what was promised
├── StoreError               the store on disk: damaged content, not ours
│   ├── DiskFull             a disk, a quota or a limit without room for what is to be written
│   └── DiskDenied           a file or folder that may not be written, or read; a disk that is read-only
├── TokenizerError           a tokenizer that cannot be loaded or does not fit
├── TemplateError            a chat template that fails, loops or reaches for more than text
├── LoadError                a package that cannot run here (memory, requirements, weights)
├── RequestError             a generation request with bad content (ids, lengths, roles)
│   ├── Unplaced             tools, or a message, that the model's chat template has no place for
│   └── PromptTooLong        a prompt that leaves no room in the context for an answer
├── Busy                     as many requests wait for a model as may
└── ModelClosed              a request to a model that was closed, or whose engine has ended
    └── RanksLost            the other machines of this one are gone
"""

import re
from typing import Any

_LONGEST_WORD = 400  # characters; names of files are at most 255
_LONG_WORD = re.compile(rf"\S{{{_LONGEST_WORD + 1},}}")


class ModelkitError(Exception):
    """Base of every error meant for the user.

    `message` is one sentence, or a few, in plain words; a word too long to be read is there by its beginning
    and its end. `hint`, when given, says what to do about it and is shown on its own line.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = readable(message)
        super().__init__(self.message)
        self.hint = None if hint is None else readable(hint)

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        """With all that it says, and without its constructor, whose keywords no pickle knows: a pool of
        processes waits for ever for an error that it cannot read.
        """
        return type(self).__new__, (type(self), *self.args), self.__dict__


class ModelfileError(ModelkitError):
    """A mistake at one place of a Modelfile. `line` and `column` count from 1, in characters; both are 0
    where the file as a whole cannot be used.
    """

    def __init__(self, message: str, *, file: str, line: int, column: int, hint: str | None = None) -> None:
        super().__init__(f"{file}:{line}:{column}: {message}" if line else f"{file}: {message}", hint=hint)
        self.file = file
        self.line = line
        self.column = column


class ParameterError(ModelkitError):
    """An unknown parameter, or a value outside its type or range."""


class InvalidName(ModelkitError):
    """Text that cannot be a model name."""


class ModelNotFound(ModelkitError):
    """No model of that name is stored. `close`: is there one of a name that is much like it, in the hint?"""

    def __init__(self, message: str, *, hint: str | None = None, close: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.close = close


class SourceError(ModelkitError):
    """A model source that cannot be used as it is."""


class MalformedFile(SourceError):
    """A file that breaks its own format's rules; nothing in it can be trusted."""


class UnsupportedSource(SourceError):
    """A sound source of a kind modelkit does not import; the message names the kind."""


class PlanError(ModelkitError):
    """A create refused before anything was written."""


class FetchError(ModelkitError):
    """A model, or a part of one, that cannot be fetched from another machine, or sent to one."""


class StoreError(ModelkitError):
    """The store, or another place for files, cannot do what was asked: damage, lack of space, or
    permissions.
    """


class DiskFull(StoreError):
    """There is no room for what is to be written, on the disk or by a quota. What was there before is whole,
    and once there is room, the same can be asked again.
    """


class DiskDenied(StoreError):
    """The system does not let this user write, or read, a file or a folder, or nobody write to this disk."""


class TokenizerError(ModelkitError):
    """A tokenizer that cannot be loaded, or does not fit its model."""


class TemplateError(ModelkitError):
    """A chat template that does not parse, fails, or uses more than it may."""


class LoadError(ModelkitError):
    """A package that cannot be run here."""


class RequestError(ModelkitError):
    """A request to a loaded model with content it cannot use."""


class Unplaced(RequestError):
    """Something of a conversation that the model's chat template has no place for. `part` is "tools", or
    "message".
    """

    def __init__(self, message: str, *, part: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.part = part


class PromptTooLong(RequestError):
    """A prompt of `prompt_tokens` for a context of `context_tokens`, answer included. Of one that is far too
    long they are an estimate. 0 for both where a server has said it and only its message tells.
    """

    def __init__(
        self, message: str, *, prompt_tokens: int, context_tokens: int, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens


class Busy(ModelkitError):
    """A request that came while as many others were waiting as may, or for whose model no memory became free
    in time. Those are not concerned.

    `waiting` is how many they are; `retry_after_s` in how many seconds to try again.
    """

    def __init__(
        self, message: str, *, waiting: int, retry_after_s: int = 1, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.waiting = waiting
        self.retry_after_s = retry_after_s


class ModelClosed(ModelkitError):
    """A loaded model that can answer no more: it was closed, or its engine has ended."""


class RanksLost(ModelClosed):
    """A model that runs on several machines, of which one cannot be reached any more. It has to be started
    again, on all of them.
    """


def readable(text: str) -> str:
    """With long words by their beginnings and their ends."""
    return _LONG_WORD.sub(_ends, text)


def _ends(found: re.Match[str]) -> str:
    word = found[0]
    return f"{word[:200]}[... {len(word) - 280:,} characters left out ...]{word[-80:]}"
