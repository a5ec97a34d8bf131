"""Any sequence of operations leaves the store saying what a plain dictionary says."""

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from modelkit.errors import ModelNotFound
from modelkit.store import Package, Store
from tests.modelkit.store.packages import blobs_named, blobs_on_disk, put, read

NAMES = st.sampled_from(["a", "b", "amy/a", "a:q4"])
TREES = st.dictionaries(
    st.sampled_from(["config.json", "model.safetensors", "draft/model.safetensors", "LICENSE"]),
    st.sampled_from([b"", b"1", b"22", b"333"]),
    min_size=1,
)


class StoreMachine(RuleBasedStateMachine):
    """`model` is what the store should hold; `held` what somebody is still using."""

    def __init__(self) -> None:
        super().__init__()
        self.cleanup = ExitStack()
        self.cleanup.enter_context(patch.object(os, "fsync", lambda fd: None))
        self.store = Store(Path(self.cleanup.enter_context(tempfile.TemporaryDirectory())))
        self.model: dict[str, dict[str, bytes]] = {}
        self.held: list[tuple[ExitStack, Package, dict[str, bytes]]] = []

    def teardown(self) -> None:
        for stack, _, _ in self.held:
            stack.close()
        self.cleanup.close()

    @rule(name=NAMES, tree=TREES)
    def create(self, name: str, tree: dict[str, bytes]) -> None:
        put(self.store, name, tree)
        self.model[name] = tree

    @rule(tree=TREES)
    def give_up_creating(self, tree: dict[str, bytes]) -> None:
        with self.store.begin() as new:
            for data in tree.values():
                new.add_bytes(data)

    @rule(old=NAMES, new=NAMES)
    def copy(self, old: str, new: str) -> None:
        if old in self.model:
            self.store.copy(old, new)
            self.model[new] = self.model[old]
        else:
            with pytest.raises(ModelNotFound):
                self.store.copy(old, new)

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        if name in self.model:
            self.store.remove(name)
            del self.model[name]
        else:
            with pytest.raises(ModelNotFound):
                self.store.remove(name)

    @rule(dry_run=st.booleans())
    def prune(self, dry_run: bool) -> None:
        self.store.prune(dry_run=dry_run)

    @rule(name=NAMES)
    def hold(self, name: str) -> None:
        if name in self.model:
            stack = ExitStack()
            self.held.append((stack, stack.enter_context(self.store.hold(name)), self.model[name]))

    @precondition(lambda self: self.held)
    @rule()
    def let_go(self) -> None:
        self.held.pop()[0].close()

    @invariant()
    def names_stand_for_their_trees(self) -> None:
        names = [str(package.name) for package in self.store.packages()]
        assert {name: read(self.store, name) for name in names} == self.model

    @invariant()
    def what_is_held_is_there(self) -> None:
        for _, package, tree in self.held:
            assert {path: blob.read_bytes() for path, blob in package.files.items()} == tree

    @invariant()
    def nothing_else_is_stored(self) -> None:
        if not self.held:
            assert blobs_on_disk(self.store) == blobs_named(self.store)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=15, stateful_step_count=20)
