"""Rows of the tables: what metadata and config.json call the same number, read in both directions."""

from collections.abc import Callable
from typing import Any, Protocol

from modelkit.source.gguf.architectures.exchange import Reading, Writing
from runtime.quoting import quoted
from runtime.records import dataclass


class Setting(Protocol):
    def read(self, file: Reading) -> None:
        """Put into `file.config` what the file says."""
        ...

    def write(self, out: Writing) -> None:
        """Put into `out.metadata` what the config says."""
        ...


@dataclass(frozen=True, slots=True)
class Same:
    """A key and a field that hold the same value."""

    key: str
    names: tuple[str, ...]
    """Of the field; the first one is written."""
    default: Any = None
    """What transformers takes where a config does not say."""
    absent: Any = None
    """What llama.cpp takes where a file does not say; None: nothing, and neither does the config."""
    zero: Any = None
    """What llama.cpp takes a 0 for, where that is how files say that there is none."""
    needed: bool = False
    """Must the file say it?"""
    off: Any = None
    """A value that both sides say by being silent: not written."""
    kind: type | None = None

    def read(self, file: Reading) -> None:
        value = file.get(self.key)
        if value is None and self.needed:
            file.refuse(f"the metadata has no `{file.full(self.key)}`")
        value = self.absent if value is None else self.zero if not value and self.zero is not None else value
        if value is not None:
            file.config[self.names[0]] = self.kind(value) if self.kind else value

    def write(self, out: Writing) -> None:
        value = out.facts.get(*self.names, default=self.default)
        if value is None and self.needed:
            out.refuse(f"config.json does not say {self.names[0]}, which a GGUF file has to")
        if value is not None and value != self.off:
            out.put(self.key, self.kind(value) if self.kind else value)


@dataclass(frozen=True, slots=True)
class Always:
    """A field whose value every file of the architecture means, since llama.cpp computes nothing else."""

    name: str
    value: Any
    unless: tuple[Any, ...] = ()
    """Other values of the field that mean the same."""

    def read(self, file: Reading) -> None:
        file.config[self.name] = self.value

    def write(self, out: Writing) -> None:
        value = out.facts.get(self.name, default=self.value)
        if value != self.value and value not in self.unless:
            out.refuse(f"{self.name} is {quoted(value)}, which GGUF cannot say for {out.architecture}")


@dataclass(frozen=True, slots=True)
class Written:
    """A key that follows from the config and says nothing new when read."""

    key: str
    value: Callable[[Writing], Any]
    """None: it is not written."""
    check: Callable[[Reading], Any] | None = None
    """What it has to be, judging by what is known otherwise."""

    def read(self, file: Reading) -> None:
        found = file.get(self.key)
        wanted = self.check(file) if self.check else None
        if found is not None and wanted is not None and found != wanted:
            file.refuse(
                f"`{file.full(self.key)}` is {quoted(found)}, and the rest of the file means {quoted(wanted)}"
            )

    def write(self, out: Writing) -> None:
        value = self.value(out)
        if value is not None:
            out.put(self.key, value)


def _nothing(_: Reading | Writing) -> None:
    """For a setting that one direction says nothing of."""


@dataclass(frozen=True, slots=True)
class Special:
    """Whatever takes more than a row."""

    reading: Callable[[Reading], None] = _nothing
    writing: Callable[[Writing], None] = _nothing

    def read(self, file: Reading) -> None:
        self.reading(file)

    def write(self, out: Writing) -> None:
        self.writing(out)
