"""The texts that a package holds, and the Modelfile that makes it again, digest for digest.

Everything comes with FROM, the draft and the files of licences included; the other lines of the Modelfile say
in the open what the package holds, so that a copy of it is a good start for a package of one's own.
"""

import json
from collections.abc import Callable, Iterator

from modelkit.chat.find import find_template
from modelkit.errors import ModelfileError
from modelkit.modelfile import Directive, Modelfile
from modelkit.pack.metadata import FILE as METADATA
from modelkit.pack.metadata import Metadata, read_metadata
from modelkit.source.strict_json import read_json
from modelkit.store.package import Package
from modelkit.tokenizer.special import Specials, read_specials

_LICENSES = ("LICENSE", "LICENCE", "COPYING")
_LICENSE_LIMIT_BYTES = 64_000
_TEMPLATE = "chat_template.jinja"


def recipe(package: Package) -> Metadata:
    return read_metadata(package.files.get(METADATA), str(package.name))


def modelfile(package: Package) -> str:
    """Creating from this text gives the package's own digest again."""
    text = str(Modelfile(tuple(_directives(package))))
    has_draft = any(path.startswith("draft/") for path in package.files)
    return f"# The draft comes with FROM.\n{text}" if has_draft else text


def parameters(package: Package) -> str:
    """One `name value` per line, texts in quotes as in JSON."""
    pairs = recipe(package).parameters.texts()
    return "".join(f"{name} {json.dumps(text) if name == 'stop' else text}\n" for name, text in pairs)


def system(package: Package) -> str:
    return recipe(package).system or ""


def template(package: Package) -> str:
    """The chat template, whichever of the files holds it."""
    return find_template(package.files) or ""


def specials(package: Package) -> Specials:
    """The special tokens that templates refer to, for a package whose tokenizer need not be sound."""
    names = ("tokenizer_config.json", "special_tokens_map.json")
    found = (
        read_json(package.files[name], nonfinite=True) if name in package.files else {} for name in names
    )
    return read_specials(*found)


def licenses(package: Package, *, errors: str = "replace") -> dict[str, str]:
    """The license files that are short enough to be shown, by name. errors: what becomes of bytes that are
    not UTF-8, as in `bytes.decode`.
    """
    names = [name for name in package.files if "/" not in name and name.upper().startswith(_LICENSES)]
    small = [name for name in names if package.files[name].stat().st_size <= _LICENSE_LIMIT_BYTES]
    return {name: package.files[name].read_bytes().decode(errors=errors) for name in small}


PARTS: dict[str, Callable[[Package], str]] = {
    "modelfile": modelfile,
    "parameters": parameters,
    "template": template,
    "system": system,
    "license": lambda package: "\n".join(licenses(package, errors="surrogateescape").values()),
}


def _directives(package: Package) -> Iterator[Directive]:
    made = recipe(package)
    yield Directive("FROM", package.name.short)
    if made.own_template and _TEMPLATE in package.files:
        yield Directive("TEMPLATE", template(package))
    for keyword, value in (("SYSTEM", made.system), ("RENDERER", made.renderer), ("PARSER", made.parser)):
        if value is not None:
            yield Directive(keyword, value)
    for name, text in made.parameters.texts():
        yield Directive("PARAMETER", text, name=name)
    if made.requires is not None:
        yield Directive("REQUIRES", made.requires)
    for text in licenses(package).values():
        yield from _license(text)
    for role, content in made.messages:
        yield Directive("MESSAGE", content, name=role)


def _license(text: str) -> Iterator[Directive]:
    """Nothing for a text that is empty or that no Modelfile can hold: it comes with FROM all the same."""
    if text.strip() and "\ufffd" not in text:
        try:
            yield Directive("LICENSE", text)
        except ModelfileError:
            return
