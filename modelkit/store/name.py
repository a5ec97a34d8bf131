"""Model names: `host/namespace/model:tag`, of which only the model is needed.

    story                         tag `latest`
    story:q4
    amy/story                     a namespace
    library/story                 the same as story, as are ollama.com/library/story and ollama.com/story
    example.org:5000/amy/story    a registry's host

Names compare case-insensitively, as they do in Ollama; here that is settled once, by storing them in lower
case, which registries require of repository names anyway. A store on disk has no registry, so host and
namespace default to nothing; Ollama's default host and namespace, which its clients write or leave out, are
settled here, too.

In `index.json` a name is spelled as its `full` ref. That is the name itself wherever the OCI grammar allows
it (every usual name), so that `skopeo copy oci:STORE:story:q4 ...` finds it, and otherwise `hex@` and the
name's bytes.
"""

import re
import unicodedata
from typing import Self

from modelkit.address import OLLAMA_HOSTS, has_scheme, looks_like_path
from modelkit.errors import InvalidName
from runtime.quoting import quoted
from runtime.records import dataclass

DEFAULT_TAG = "latest"

_HOST = re.compile(r"[a-z0-9_][a-z0-9._-]{0,343}(:[0-9]{1,5})?", re.ASCII)
_NAMESPACE = re.compile(r"[a-z0-9_][a-z0-9_-]{0,79}", re.ASCII)
_PART = re.compile(r"[a-z0-9_][a-z0-9._-]{0,79}", re.ASCII)
_ANYWHERE = re.compile(r"[a-z0-9._-]", re.ASCII)
_LONGEST = 350 + 80 + 80 + 80 + 3
_RESERVED = frozenset(
    ("con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10)))
)

# OCI image specification, annotations.md: the grammar of org.opencontainers.image.ref.name.
_COMPONENT = r"[A-Za-z0-9]+(?:(?:[-._:@+]|--)[A-Za-z0-9]+)*"
_REF = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*", re.ASCII)
_HEX_REF = "hex@"

_OLLAMA_DEFAULT = "library"

_OF_ADAPTERS = (
    "An adapter of a package is chosen by --adapter, in Python by `adapters`; "
    "NAME+ADAPTER is for compare and for clients of a server."
)
_OTHER = "No such text is looked for in the store. Choose another name."
_EXPECTED = "A name looks like `story`, `story:q4` or `amy/story:q4`: letters, digits, `_`, `-` and `.`"
OF_PATHS = (
    "`modelkit run` takes a path as it is. To make a package of what lies there: `modelkit create NAME`, "
    "with FROM and the path in a Modelfile."
)


@dataclass(frozen=True, slots=True, order=True)
class Name:
    """A valid model name. Build one with `parse`, or with `new` where it is to be given to a package."""

    host: str
    """May be empty."""
    namespace: str
    """May be empty."""
    model: str
    tag: str = DEFAULT_TAG

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a name as users type it. Raises InvalidName for everything that is not one."""
        if len(text) > _LONGEST:
            raise InvalidName(f"a model name of {len(text):,} characters is too long", hint=_EXPECTED)
        lowered = text.lower() if text.isascii() else text
        rest, colon, tag = lowered, "", DEFAULT_TAG
        if ":" in lowered.rpartition("/")[2]:
            rest, colon, tag = lowered.rpartition(":")
        parts = rest.split("/")
        if len(parts) > 1 and parts[0] in OLLAMA_HOSTS:
            del parts[0]
        if len(parts) > 3:
            raise _refused(text, "it has more than three parts")
        host, namespace, model = ["", "", *parts][-3:]
        _check(text, "host", host, _HOST, needed=len(parts) == 3)
        _check(text, "namespace", namespace, _NAMESPACE, needed=len(parts) >= 2)
        _check(text, "model", model, _PART, needed=True)
        _check(text, "tag", tag, _PART, needed=bool(colon))
        if namespace == _OLLAMA_DEFAULT and not host:
            namespace = ""
        return cls(host, namespace, model, tag)

    @classmethod
    def new(cls, text: str) -> Self:
        """`parse`, for the name of a new package. Raises InvalidName, too, for one that means something
        else wherever models are named.
        """
        return cls.parse(text).allowed()

    def allowed(self) -> Self:
        """This name, which may be given to a package. Raises as `new` does."""
        why = ""
        if has_scheme(self.short):
            why = f"{quoted(self.short.partition(':')[0] + ':')} begins addresses"
        elif looks_like_path(self.short):
            why = "it ends as the paths of files do"
        if why:
            raise InvalidName(f"no package can be called {quoted(self.short)}: {why}", hint=_OTHER)
        return self

    @classmethod
    def from_ref(cls, ref: object) -> Self | None:
        """The name that a ref in index.json spells, or None where another tool wrote something that is no
        name.
        """
        if not isinstance(ref, str):
            return None
        try:
            if ref.startswith(_HEX_REF):
                ref = bytes.fromhex(ref.removeprefix(_HEX_REF)).decode("ascii")
            return cls.parse(ref)
        except (InvalidName, ValueError):
            return None

    @property
    def short(self) -> str:
        """The name with its tag, without the parts that are empty: what tables show."""
        return f"{'/'.join(part for part in (self.host, self.namespace, self.model) if part)}:{self.tag}"

    @property
    def full(self) -> str:
        """The ref in index.json, within the OCI grammar; `from_ref` reads it back."""
        return self.short if _REF.fullmatch(self.short) else _HEX_REF + self.short.encode().hex()

    @property
    def file_like(self) -> bool:
        """Is it typed as files are called, such as `m.gguf`?"""
        return looks_like_path(self.short.removesuffix(f":{DEFAULT_TAG}"))

    def __str__(self) -> str:
        """The shortest text that means this name wherever models are named, and not a path: what sentences
        show.
        """
        return self.short if self.file_like else self.short.removesuffix(f":{DEFAULT_TAG}")


def as_name(name: Name | str) -> Name:
    return name if isinstance(name, Name) else Name.parse(name)


def valid_name_from(text: str) -> Name:
    """A name made from a folder's: `My Model!` gives `my-model`.

    Raises InvalidName where nothing of it can stand in one, so that no two such folders make one package.
    """
    plain = unicodedata.normalize("NFKD", text[:1000]).encode("ascii", "ignore").decode().lower()
    dashed = re.sub(r"[^a-z0-9._]+", "-", plain)
    single = re.sub(r"[._-]*-[._-]*|([._])[._]+", lambda run: run[1] or "-", dashed)
    model = single.strip("._-")[:80].rstrip("._-")
    if not model or model in _RESERVED:
        why = f"no package can be called like the folder {quoted(text or '/')}"
        raise InvalidName(why, hint="Give the package a name.")
    return Name("", "", model).allowed()


def _check(text: str, part: str, value: str, allowed: re.Pattern[str], *, needed: bool) -> None:
    if not value:
        if needed:
            raise _refused(text, f"its {part} is empty")
    elif not allowed.fullmatch(value):
        raise _refused(text, _why_not(part, value))
    elif value.endswith(".") or ".." in value or value in _RESERVED:
        raise _refused(text, f"its {part} {quoted(value)} could be mistaken for a path")


def _why_not(part: str, value: str) -> str:
    """What is wrong with a part: its first character that no name has, its beginning, or its length."""
    bad = next((char for char in value if not _ANYWHERE.fullmatch(char)), None)
    if bad is None and value[0] in "-.":
        return f"its {part} begins with {quoted(value[0])}"
    if bad is None:
        return f"its {part} is too long" if len(value) > 80 else f"its {part} is not one that a name can have"
    if bad.isspace():
        return "it has a blank in it"
    # Letters of other scripts look like ours; their number tells them apart.
    number = "" if bad.isascii() else f" (U+{ord(bad):04X})"
    return f"it has the character {quoted(bad)}{number} in it"


def _refused(text: str, why: str) -> InvalidName:
    if looks_like_path(text):
        why, hint = "it is a path", OF_PATHS
    else:
        hint = _OF_ADAPTERS if "+" in text else _EXPECTED
    return InvalidName(f"{quoted(text)} is not a model name: {why}", hint=hint)
