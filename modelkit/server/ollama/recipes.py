"""`/api/create`: a package to be made, as directives of a Modelfile and files that were sent before.

What the request says becomes a Modelfile, so that it is checked as one, but for texts, not all of which a
Modelfile can hold: code has lines that end in three quotes. A path that a client writes is never followed:
`from` is the name of a stored package or an address, and files are named by what they hold.
"""

import errno
import os
import shutil
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from modelkit.address import read_address
from modelkit.chat.find import check_explicit
from modelkit.errors import (
    LoadError,
    ModelfileError,
    ModelkitError,
    PlanError,
    SourceError,
    TokenizerError,
)
from modelkit.modelfile import ROLES, Directive, Modelfile, Recipe
from modelkit.python_faults import os_reason
from modelkit.server.faults import refused
from modelkit.server.fields import Fields, wrong
from modelkit.server.ollama.reading import read_model
from modelkit.server.ollama.staging import Staging
from modelkit.source.gguf.folder import is_gguf
from modelkit.store.disk import hard_link, storing
from modelkit.store.name import Name
from runtime.quoting import quoted, shown
from runtime.records import dataclass

_MOST_FILES = 1000
_LONGEST_NAME = 400
_KEYWORDS = ("template", "renderer", "parser", "requires")
_FOLDERS = {"FROM": "files", "ADAPTER": "adapters", "DRAFT": "draft_files"}
_REMOTE = ("remote_host", "info")
_OLDER = ("modelfile", "path")
_KNOWN = frozenset(
    {
        *("model", "name", "from", "license", "parameters", "messages", "stream"),
        *("quantize", "quantization", "draft_quantize"),
        *_FOLDERS.values(),
        *_KEYWORDS,
        *_REMOTE,
        "system",
    }
)
_NO_NAME = (errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)  # too long, or a folder's, too
_OF_FILES = (SourceError, TokenizerError, LoadError, PlanError, ModelfileError)


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """What was asked for."""

    name: Name
    directives: tuple[Directive, ...]
    """Without those that name files."""
    texts: Mapping[str, Any]
    """Those of them that a recipe holds as they are, by its names."""
    files: Mapping[str, Mapping[str, str]]
    """By keyword (FROM, DRAFT, ADAPTER): digests by path."""
    quantize: str | None
    quantize_draft: str | None
    stream: bool
    ignored: tuple[str, ...]
    """Fields that were given and are none of this."""


def read_create(body: Fields) -> CreateRequest:
    """Raises Refused, InvalidName."""
    for field in _REMOTE:
        body.refuse(field, "this server makes packages of what is here")
    for field in _OLDER:
        body.refuse(field, "an older form; send from or files, with system, parameters and the like")
    files = {keyword: found for keyword, field in _FOLDERS.items() if (found := _files(body, field))}
    directives = [*_from(body, has_files="FROM" in files)]
    for field in _KEYWORDS:
        if text := body.text(field):
            directives.append(Directive(field.upper(), text))
    if (given := body.fields("parameters")) is not None:
        directives += _parameters(given)
    texts = {
        "system": body.text("system") or None,
        "licenses": tuple(text for text in body.texts("license", 64) if text.strip()),
        "messages": tuple(_message(one) for one in body.each("messages", 1000)),
    }
    return CreateRequest(
        name=Name.new(read_model(body)),
        directives=tuple(directives),
        texts=texts,
        files=files,
        quantize=body.text("quantize") or body.text("quantization") or None,
        quantize_draft=body.text("draft_quantize") or None,
        stream=body.flag("stream", default=True),
        ignored=body.unknown(_KNOWN),
    )


@contextmanager
def laid_out(wanted: CreateRequest, home: Path) -> Generator[Recipe]:
    """The recipe, while its files are where it says. Raises Refused for a file that was not sent, and
    StoreError.
    """
    staging = Staging(home)
    with staging.folder() as folder:
        found: list[Directive] = []
        for keyword, files in wanted.files.items():
            place = Path(folder, keyword.lower())
            for name, digest in files.items():
                source = staging.find(digest)
                if source is None:
                    raise refused(
                        "invalid_request",
                        f"{_FOLDERS[keyword]}.{name}: the file {shown(digest)} was not sent; "
                        "POST it to /api/blobs first",
                        _FOLDERS[keyword],
                    )
                _put(source, place / name, f"{_FOLDERS[keyword]}.{name}")
            places = _adapters(files) if keyword == "ADAPTER" else [_alone(files)]
            found += [Directive(keyword, f"./{keyword.lower()}{one}") for one in places]
        with _worded(folder):
            made = Modelfile((*found, *wanted.directives), file=os.path.join(folder, "request"))
            yield replace(made.recipe(check_template=check_explicit), **wanted.texts)


def _put(source: Path, target: Path, field: str) -> None:
    """A second name for a file, or a copy where the disk knows none. Raises Refused where none can lie, and
    StoreError.
    """
    with storing(target):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if not hard_link(source, target):
                shutil.copyfile(source, target)
        except OSError as error:
            if error.errno not in _NO_NAME:
                raise
            why = os_reason(error)
            raise refused("invalid_request", f"{field}: no such file can be made: {why}", field) from error


@contextmanager
def _worded(folder: str) -> Generator[None]:
    """What is wrong with files that a client sent is the client's to mend, and where they lie here is not."""
    try:
        yield
    except _OF_FILES as error:
        raise refused("invalid_request", str(error).replace(f"{folder}{os.sep}", "")) from error
    except ModelkitError as error:
        error.message = error.message.replace(f"{folder}{os.sep}", "")
        raise


def _alone(files: Iterable[str]) -> str:
    """A single file is named itself: a folder of one would be searched for what makes it whole."""
    (name, *others) = files
    return f"/{name}" if not others and (is_gguf(name) or name.endswith(".safetensors")) else ""


def _adapters(files: Iterable[str]) -> list[str]:
    """Each folder is one, which goes by its name, and so is each GGUF file; all else lies in one together."""
    folders: dict[str, list[str]] = {}
    for name in files:
        above = name.rpartition("/")[0]
        own = name if is_gguf(name) else above
        folders.setdefault(own, []).append(name)
    return [_alone(inside) or (f"/{folder}" if folder else "") for folder, inside in folders.items()]


def _from(body: Fields, *, has_files: bool) -> list[Directive]:
    text = body.text("from", "")
    if not text:
        if not has_files:
            raise refused("invalid_request", "neither 'from' or 'files' was specified", "from")
        return []
    if has_files:
        raise refused("invalid_request", "from and files are both given; which is it?", "from")
    if read_address(text) is None:
        Name.parse(text)
    return [Directive("FROM", text)]


def _message(given: Fields) -> tuple[str, str]:
    role = given.choice("role", ROLES)
    if role is None:
        raise given.wrong("role", f"one of {', '.join(ROLES)}")
    return role, given.text("content", "")


def _files(body: Fields, field: str) -> dict[str, str]:
    given = body.fields(field)
    if given is None:
        return {}
    if len(given.value) > _MOST_FILES:
        raise refused("invalid_request", f"{field} has more than {_MOST_FILES:,} files", field)
    for name in given.value:
        if not _fit(name):
            raise refused("invalid_request", f"{field}: {quoted(name)} is not a relative file path", field)
        if not given.text(name):
            raise wrong(given.name(name), given.raw(name), "the digest of a file")
    return {name: given.needed_text(name) for name in given.value}


def _fit(name: str) -> bool:
    """Does it stay in its folder?"""
    plain = 0 < len(name) <= _LONGEST_NAME and name.isprintable() and "\\" not in name and ":" not in name
    path = PurePosixPath(name)
    inside = not path.is_absolute() and ".." not in path.parts and str(path) == name and name != "."
    return plain and inside


def _parameters(given: Fields) -> list[Directive]:
    found: list[Directive] = []
    for name, value in given.value.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, bool):
                one = "true" if one else "false"
            if one is None:
                continue
            if not isinstance(one, str | int | float):
                raise wrong(given.name(name), one, "a number or a text")
            if isinstance(one, float) and one.is_integer():
                one = int(one)
            found.append(Directive("PARAMETER", str(one), name=name))
    return found
