"""Does a package that somebody else made run here? Asked before it gets a name in the store, and, by the
headers of its weights alone, before these are fetched.

The answer is what opening it to run would say: of a package that `create` made no plan is made again.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from modelkit.pack.accept import decide
from modelkit.pack.checks import DraftAlone, check_parts, check_requires, check_settled
from modelkit.pack.ready import make_ready
from modelkit.pack.sources import Origin, open_files
from modelkit.pack.worded import worded
from modelkit.tokenizer import Tokenizer
from runtime.models import describe


def check_runs(files: Mapping[str, Path], label: str, *, hollow: bool) -> tuple[str, ...]:
    """Notes on a package that runs here. files: by their paths in it. hollow: are its weights there by their
    headers alone?

    Raises SourceError, StoreError, PlanError, TokenizerError, LoadError for one that does not.
    """
    with worded():
        origin = open_files(files, label, {})
        if origin.metadata.requires is not None:
            check_requires(origin.metadata.requires)
        try:
            tokenizer = _check(_hollow(origin) if hollow else origin)
        except DraftAlone as alone:
            return (f"{alone.message}. {alone.hint}",)
        inventory = origin.source.inventory
        make_ready(inventory, describe(inventory.config), tokenizer, origin.metadata.parameters)
    return ()


def _hollow(origin: Origin) -> Origin:
    draft = origin.draft and replace(origin.draft, hollow=True)
    return replace(origin, source=replace(origin.source, hollow=True), draft=draft)


def _check(origin: Origin) -> Tokenizer:
    if origin.metadata.provenance is not None:
        return check_settled(origin.source.inventory, origin.draft and origin.draft.inventory)
    target = decide(origin.source, "target")
    tokenizer, _ = check_parts(target, decide(origin.draft, "draft") if origin.draft else None)
    return tokenizer
