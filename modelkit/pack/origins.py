"""What a package was made from, so that `show --modelfile` can say it: FROM, DRAFT and QUANTIZE lines.

A path means something on one machine, and would give equal recipes in two folders two digests. So paths stay
out of the package; the store keeps them beside it, as a memo that goes when the package goes. What the
package itself says of its origin (`metadata.Provenance`) travels with it.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from modelkit.errors import ModelkitError, StoreError
from modelkit.fetch.upstream import Upstream
from modelkit.modelfile import Recipe, Reference
from modelkit.modelfile.quantizing import FROM
from modelkit.pack.formats import Formats
from modelkit.pack.metadata import Metadata
from modelkit.store.digest import Digest
from modelkit.store.store import Store
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One directive."""

    keyword: str
    value: str
    """Paths are absolute."""
    package: Digest | None = None
    """What the value stood for, where it is the name of a stored package."""

    def holds(self, store: Store) -> bool:
        """Does it still name what it named then? Files are looked for, not compared."""
        if self.package is not None:
            with suppress(ModelkitError):
                return store.resolve(self.value).digest == self.package
            return False
        path = self.value.partition(f" {FROM} ")[2] if self.keyword == "QUANTIZE" else self.value
        return not path.startswith("/") or Path(path).exists()


OPTION = "OPTION"
"""The keyword of a line that is none: an option that `create` was given and no directive says."""


def lines_of(
    recipe: Recipe,
    asked: Formats,
    store: Store,
    fetched: Mapping[str, Upstream | None],
    *,
    fused: bool = False,
) -> tuple[Line, ...]:
    """The lines that say where the weights come from. fetched: where what a keyword names was fetched from;
    the line then names the commit, which stays what it is."""
    named = (("FROM", recipe.from_), ("DRAFT", recipe.draft), *(("ADAPTER", one) for one in recipe.adapters))
    found = [
        Line(keyword, upstream.address)
        if (upstream := fetched.get(keyword))
        else _line(keyword, reference, store)
        for keyword, reference in named
        if reference
    ]
    found += [Line("DRAFT", "")] if recipe.draftless else []
    words = (("", asked.target), ("draft ", asked.draft))
    options = [Line(OPTION, "--fuse-adapters")] if fused else []
    return (*found, *(Line("QUANTIZE", f"{role}{said.line}") for role, said in words if said), *options)


def lines_in(made: Metadata, *, draft: bool, adapters: bool) -> tuple[Line, ...]:
    """The same of what a package itself says, which came from elsewhere: () unless all of it can be fetched
    again. draft, adapters: does it have any? Fused ones are weights that no place has.
    """
    named = (("FROM", "", made.provenance), ("DRAFT", "draft ", made.draft_provenance if draft else None))
    known = [(keyword, role, one) for keyword, role, one in named if one is not None]
    if adapters or made.adapters or len(known) < 1 + draft or not all(one.upstream for _, _, one in known):
        return ()
    places = [Line(keyword, one.upstream.address) for keyword, _, one in known if one.upstream]
    return (*places, *(Line("QUANTIZE", f"{role}{one.format}") for _, role, one in known if one.format))


def remember(store: Store, package: Digest, lines: tuple[Line, ...]) -> None:
    """Where that cannot be stored, `show` says less. A package made of itself has learned nothing new."""
    if any(one.package == package for one in lines):
        return
    rows = [[one.keyword, one.value, *([str(one.package)] if one.package else [])] for one in lines]
    with suppress(StoreError):
        store.memo_put(_key(package), {"package": str(package), "lines": rows})


def recall(store: Store, package: Digest) -> tuple[Line, ...]:
    """The lines that the package was made from; () where they are not known any more."""
    value = store.memo_get(_key(package))
    rows = value.get("lines") if value else None
    return tuple(map(_read, rows)) if isinstance(rows, list) and all(map(_is_row, rows)) else ()


def _key(package: Digest) -> str:
    return f"origin:{package}"


def _line(keyword: str, reference: Reference, store: Store) -> Line:
    if reference.path is not None:
        return Line(keyword, os.path.abspath(reference.path))  # an adapter's name is its folder's
    with suppress(ModelkitError):
        return Line(keyword, reference.text, store.resolve(reference.text).digest)
    return Line(keyword, reference.text)


def _is_row(row: object) -> bool:
    return isinstance(row, list) and len(row) in (2, 3) and all(isinstance(one, str) for one in row)


def _read(row: list[str]) -> Line:
    return Line(row[0], row[1], Digest.parse(row[2]) if len(row) > 2 else None)
