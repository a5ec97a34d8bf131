"""Does a package that somebody else made run here? Asked before it gets a name in the store, and before its
weights are fetched: then their headers have to do, or, where these are in an archive, the config.

The answer is what opening it to run would say: of a package that `create` made no plan is made again.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from modelkit.fetch.pull import Weights
from modelkit.pack.accept import decide
from modelkit.pack.checks import DraftAlone, check_config, check_parts, check_requires, check_settled
from modelkit.pack.file_errors import worded
from modelkit.pack.metadata import FILE as METADATA
from modelkit.pack.metadata import read_metadata
from modelkit.pack.model_setup import read_setup
from modelkit.pack.part import CONFIG
from modelkit.pack.sources import Origin, open_files
from modelkit.source.strict_json import read_json
from modelkit.tokenizer import Tokenizer
from runtime.models import describe


def check_runs(files: Mapping[str, Path], label: str, weights: Weights) -> tuple[str, ...]:
    """Notes on a package that runs here. files: by their paths in it; those alone that are here.

    Raises SourceError, StoreError, PlanError, TokenizerError, LoadError for one that does not.
    """
    with worded():
        metadata = read_metadata(files.get(METADATA), label)
        if metadata.requires is not None:
            check_requires(metadata.requires)
        if weights == "elsewhere":
            check_config(read_json(files[CONFIG], label=f"{label}/{CONFIG}"), f"the target {label}")
            return ()
        origin = open_files(files, label, {})
        try:
            tokenizer = _check(_hollow(origin) if weights == "headers" else origin)
        except DraftAlone as alone:
            return (f"{alone.message}. {alone.hint}",)
        inventory = origin.source.inventory
        read_setup(inventory, describe(inventory.config), tokenizer, metadata.parameters)
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
