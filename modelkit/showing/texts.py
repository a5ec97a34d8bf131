"""The texts that a package holds, and the Modelfile that makes it again, digest for digest.

FROM, DRAFT and QUANTIZE are those that it was made from, while they are there; otherwise everything comes
FROM the package itself, and comments say what is known of its sources. The other lines say in the open what
the package holds, so that a copy of it is a good start for a package of one's own.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator

from modelkit.chat.find import find_template
from modelkit.errors import ModelfileError
from modelkit.modelfile import MAX_BYTES, MAX_LINES, PARAMETERS, Directive, Modelfile
from modelkit.modelfile.syntax import count_lines
from modelkit.pack import origins
from modelkit.pack.licenses import is_license
from modelkit.pack.metadata import FILE as METADATA
from modelkit.pack.metadata import Metadata, read_metadata
from modelkit.source.companion_files import LIMIT_BYTES, TEMPLATE
from modelkit.source.strict_json import read_json
from modelkit.store.package import Package
from modelkit.store.store import Store
from modelkit.tokenizer.special import Specials, declared_tokens, read_specials
from runtime.quoting import quoted, shown


def recipe(package: Package) -> Metadata:
    return read_metadata(package.files.get(METADATA), str(package.name))


def modelfile(package: Package, store: Store) -> str:
    """Creating from this text gives the package's own digest again."""
    has_draft = any(path.startswith("draft/") for path in package.files)
    adapted = any(path.startswith("adapters/") for path in package.files)
    lines = origins.recall(store, package.digest)
    lines = lines or origins.lines_in(recipe(package), draft=has_draft, adapters=adapted)
    if lines and all(line.holds(store) for line in lines):
        first = [Directive(line.keyword, line.value) for line in lines if line.keyword != origins.OPTION]
        comments = [f"Create it with {one.value}." for one in lines if one.keyword == origins.OPTION]
        based = any(line.keyword == "FROM" and line.package for line in lines)
    else:
        first, based = [Directive("FROM", package.name.short)], False
        comments = list(_sources(package, lines))
    if has_draft and not any(one.keyword == "DRAFT" for one in first):
        comments.append("The draft comes with FROM.")
    if adapted and not any(one.keyword == "ADAPTER" for one in first):
        comments.append("The adapters come with FROM.")
    try:
        text = _bounded(Modelfile((*first, *_directives(package, clear=based))))
    except ModelfileError as error:  # a saved conversation, long or about code
        text = str(Modelfile((Directive("FROM", package.name.short),)))
        why = error.message.partition(": ")[2]
        comments = [*_sources(package, lines), f"All of it comes with FROM: {why}"]
    return "".join(f"# {comment}\n" for comment in comments) + text


def _bounded(made: Modelfile) -> str:
    """Its text. Raises ModelfileError for one that is longer than those that are read."""
    text = str(made)
    if len(text.encode()) > MAX_BYTES or count_lines(text) > MAX_LINES:
        raise ModelfileError("it is longer than a Modelfile may be", file=made.file, line=1, column=1)
    return text


def _sources(package: Package, lines: Iterable[origins.Line]) -> Iterator[str]:
    """What is known of the sources of a package, of which not all are there."""
    for line in lines:
        yield re.sub(r"[\r\n]", " ", f"Made with {line.keyword} {line.value}")
    made = recipe(package)
    for role, one in (("", made.provenance), ("draft ", made.draft_provenance)):
        if one and one.format and not lines:
            yield f"Made with QUANTIZE {role}{one.format}"
        if one and one.upstream:
            yield f"Made from {role}{one.upstream.address}"
        for name, digest in one.sources.items() if one else ():
            yield f"Made from {role}{quoted(name)} {digest}"
    for one in made.adapters:
        for name, digest in one.sources.items():
            fused = " (fused)" if one.fused else ""
            yield f"Made from adapter {shown(one.name)}{fused}: {quoted(name)} {digest}"


def parameters(package: Package) -> str:
    """One `name value` per line, texts in quotes as in JSON."""
    pairs = recipe(package).parameters.texts()
    return "".join(
        f"{name} {json.dumps(text) if PARAMETERS[name].repeats else text}\n" for name, text in pairs
    )


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


def added_tokens(package: Package) -> frozenset[str]:
    """The texts of special and added tokens that tokenizer_config.json names."""
    name = "tokenizer_config.json"
    config = read_json(package.files[name], nonfinite=True) if name in package.files else {}
    return frozenset({*specials(package), *(token.content for token in declared_tokens(config, {}))})


def licenses(package: Package) -> dict[str, str]:
    """The texts of the license files, by name. Of one above 1 MiB the beginning, and a line that says so."""
    return {name: _license_text(package, name, MAX_BYTES, "replace") for name in _licenses(package)}


def _licenses(package: Package) -> list[str]:
    return [name for name in package.files if is_license(name)]


def _license_text(package: Package, name: str, most_bytes: int, errors: str = "surrogateescape") -> str:
    """errors: what becomes of bytes that are not UTF-8, as in `bytes.decode`."""
    path = package.files[name]
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        text = file.read(most_bytes).decode(errors=errors)
    if size_bytes <= most_bytes:
        return text
    return f"{text}\n[{size_bytes - most_bytes:,} bytes more stand in the package's file {name}]\n"


def _whole_licenses(package: Package) -> str:
    return "\n".join(_license_text(package, name, LIMIT_BYTES) for name in _licenses(package))


PARTS: dict[str, Callable[[Package], str]] = {
    "parameters": parameters,
    "template": template,
    "system": system,
    "license": _whole_licenses,
}


def _directives(package: Package, *, clear: bool) -> Iterator[Directive]:
    """Without those that say where weights come from. clear: FROM may bring a system message, which is not
    the package's.
    """
    made = recipe(package)
    if clear and made.system is None:
        yield Directive("SYSTEM", "")
    if made.own_template and TEMPLATE in package.files:
        yield Directive("TEMPLATE", template(package))
    for keyword, value in (("SYSTEM", made.system), ("RENDERER", made.renderer), ("PARSER", made.parser)):
        if value is not None:
            yield Directive(keyword, value)
    for name, text in made.parameters.texts():
        yield Directive("PARAMETER", text, name=name)
    if made.requires is not None:
        yield Directive("REQUIRES", made.requires)
    for name in _licenses(package):
        if package.files[name].stat().st_size <= MAX_BYTES:  # no Modelfile can hold a longer one
            yield from _license(_license_text(package, name, MAX_BYTES))
    for role, content in made.messages:
        yield Directive("MESSAGE", content, name=role)


def _license(text: str) -> Iterator[Directive]:
    """Nothing for a text that is empty or that no Modelfile can hold: it comes with FROM all the same."""
    if text.strip():
        try:
            yield Directive("LICENSE", text)
        except ModelfileError:
            return
