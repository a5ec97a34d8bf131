"""`modelkit pull`: what an address names becomes a package. What is no package where it comes from (a model
of the hub, one of Ollama's) is packaged as `create` does with a Modelfile of one line, FROM and the address.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from modelkit.address import (
    Address,
    RegistryAddress,
    has_scheme,
    looks_like_path,
    read_address,
    read_pullable,
)
from modelkit.errors import FetchError, InvalidName, ModelkitError, StoreError
from modelkit.fetch.access import Access
from modelkit.fetch.find import where_to_get
from modelkit.fetch.pull import Pulled, name_for
from modelkit.modelfile import Recipe, Reference
from modelkit.pack.build import build
from modelkit.pack.metadata import FILE as METADATA
from modelkit.pack.metadata import read_metadata
from modelkit.pack.prepare import foresee
from modelkit.pack.run_check import check_runs
from modelkit.store.name import Name
from modelkit.store.store import Store
from runtime.quoting import quoted


def read_pull_address(text: str) -> Address:
    """The address that somebody wants to pull. Raises InvalidName, which says what to write instead."""
    text = text.strip()
    address = read_pullable(text)
    if address is not None:
        return address
    if looks_like_path(text):
        hint = f"What is here is packaged by `modelkit create NAME`, with FROM {text} in a Modelfile."
    else:
        hint = (
            where_to_get(text) or "Examples: hf.co/org/name, ollama.com/library/x, oci://host/repository:tag"
        )
    raise InvalidName(f"{quoted(text)} does not say where to fetch it", hint=hint)


def pull(
    address: Address,
    store: Store,
    access: Access,
    *,
    name: Name | None = None,
    quantize: str | None = None,
) -> Pulled:
    """Fetch a model and give it a name, by default that of `name_for`. quantize: a word of QUANTIZE, for what
    is packaged here.

    Raises FetchError, StoreError, SourceError and what else `create` refuses; then no name has changed.
    """
    name = (name or name_for(address, quantize)).allowed()
    if isinstance(address, RegistryAddress):
        from modelkit.fetch.registry.pull import pull as pull_package  # httpcore2 takes a moment

        pulled = pull_package(
            address, name, store, access, build, foresee=foresee, judge=check_runs, quantize=quantize
        )
    else:
        recipe = Recipe(from_=Reference(str(address), None, address))
        made = build(recipe, name, store, quantize=quantize, progress=access.listener, access=access)
        pulled = Pulled(made.name, made.digest, made.size_bytes, made.notes)
    if quantize is None:
        with suppress(StoreError):
            store.memo_put(_key(address), {"package": str(pulled.digest)})
    return pulled


def address_of(text: str, store: Store) -> Address | None:
    """`read_address`, where no package is stored under this very text: then nothing is fetched for it."""
    return None if _is_name(text, store) else read_address(text)


def _is_name(text: str, store: Store) -> bool:
    """`Name.new` gives none with a scheme, but other tools and earlier versions may have."""
    try:
        return bool((Name.parse(text).host or has_scheme(text)) and store.digest(text))
    except ModelkitError:
        return False


def pull_outline(address: Address, store: Store, access: Access, *, name: Name | None = None) -> Pulled:
    """Fetch all of a package but its weights, for those who plan with it or run it on several machines.
    Raises as `pull` does.
    """
    if not isinstance(address, RegistryAddress) or address.dialect != "oci":
        raise InvalidName(
            f"{address} names no package in a registry, and nothing else has an outline",
            hint="An address is oci://HOST/REPOSITORY:TAG.",
        )
    from modelkit.fetch.registry.outline import pull_outline as pull_files

    pulled = pull_files(address, (name or name_for(address)).allowed(), store, access, _check_outline)
    with suppress(StoreError):
        store.memo_put(_outline_key(address), {"package": str(pulled.digest)})
    return pulled


def _check_outline(files: Mapping[str, Path]) -> None:
    """Whatever `create` did not make is converted or looked at when it is opened, which takes its numbers."""
    metadata = read_metadata(files.get(METADATA), "this package")
    if metadata.provenance is None:
        raise FetchError(
            "this package was not made by `modelkit create`, and has no outline",
            hint="Pull all of it (without --outline).",
        )


def stored(address: Address, store: Store, *, outlines: bool = False) -> Name | None:
    """The package that an earlier pull of the same address made, or its outline where that will do; None
    where there is none, or where its name stands for something else now.
    """
    name, keys = name_for(address), [_key(address), *([_outline_key(address)] if outlines else [])]
    made = [found.get("package") for found in map(store.memo_get, keys) if found is not None]
    try:
        same = bool(made) and str(store.resolve(name).digest) in made
    except ModelkitError:
        return None
    return name if same else None


def stored_or_pulled(address: Address, store: Store, access: Access, *, outlines: bool = False) -> Name:
    """The package of that address, fetched where no pull has stored it yet. outlines: as for `stored`."""
    return stored(address, store, outlines=outlines) or pull(address, store, access).name


def bring(recipe: Recipe, store: Store, access: Access) -> Access:
    """Pull the packages that FROM and DRAFT name in registries, where they are not stored yet; what may be
    fetched, knowing them. Raises what `pull` does, at the line that names the package.
    """
    found = dict(access.packages)
    for keyword, reference in (("FROM", recipe.from_), ("DRAFT", recipe.draft)):
        if reference is not None and isinstance(reference.address, RegistryAddress):
            with recipe.at(keyword):
                found[reference.address] = stored_or_pulled(reference.address, store, access)
    return replace(access, packages=found)


def _key(address: Address) -> str:
    return f"pulled:{address}"


def _outline_key(address: Address) -> str:
    return f"outlined:{address}"
