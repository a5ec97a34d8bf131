"""What a package was made from, so that `show --modelfile` can say it: FROM, DRAFT and QUANTIZE lines.

A path means something on one machine, and would give equal recipes in two folders two digests. So paths stay
out of the package; the store keeps them beside it, as a memo that goes when the package goes. What the
package itself says of its origin (`metadata.Provenance`) travels with it.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from modelkit.errors import ModelkitError, StoreError
from modelkit.fetch.upstream import Upstream
from modelkit.modelfile import Recipe, Reference
from modelkit.pack.asked import Asked
from modelkit.store.digest import Digest
from modelkit.store.store import Store


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
        return not self.value.startswith("/") or Path(self.value).exists()


def lines_of(
    recipe: Recipe, asked: Asked, store: Store, fetched: Mapping[str, Upstream | None]
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
    words = (("", asked.target), ("draft ", asked.draft))
    return (*found, *(Line("QUANTIZE", f"{role}{said.line}") for role, said in words if said))


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
        return Line(keyword, str(reference.path.resolve()))
    with suppress(ModelkitError):
        return Line(keyword, reference.text, store.resolve(reference.text).digest)
    return Line(keyword, reference.text)


def _is_row(row: object) -> bool:
    return isinstance(row, list) and len(row) in (2, 3) and all(isinstance(one, str) for one in row)


def _read(row: list[str]) -> Line:
    return Line(row[0], row[1], Digest.parse(row[2]) if len(row) > 2 else None)
