"""A package goes to a registry and comes back as it was; what is there already does not travel."""

from pathlib import Path

from modelkit.fetch.access import Access
from modelkit.fetch.registry.push import push
from modelkit.pack import pulling
from modelkit.store import Name, Store
from tests.modelkit.fetch.conftest import QUICK, at, pull
from tests.modelkit.store.packages import TREE, put, read
from tests.support.fake_registry import FakeRegistry
from tests.support.gguf_package import create
from tests.support.tiny import write_model

NAME = Name.parse("back")


def test_out_and_back_is_the_same_package(store: Store, registry: FakeRegistry, tmp_path: Path) -> None:
    digest = put(store, "story", format="safetensors")
    pushed = push("story", at(registry), store, Access(), limits=QUICK)
    assert (pushed.digest, pushed.sent_bytes > 5000, str(pushed.address)) == (
        digest,
        True,
        f"oci://{registry.host}/amy/story:q4",
    )
    other = Store(tmp_path / "other")
    pulled = pull(at(registry), NAME, other, Access(), limits=QUICK)
    assert (pulled.digest, pulled.notes) == (digest, ())
    assert read(other, "back") == TREE
    assert other.verify().problems == ()
    assert not list((other.root / "partial").iterdir())


def test_what_does_not_run_here_is_kept_and_told(
    store: Store, registry: FakeRegistry, tmp_path: Path
) -> None:
    put(store, "story", format="safetensors")
    create(store, write_model(tmp_path / "model"), "model")
    for name in ("story", "model"):
        push(name, at(registry, f"amy/{name}"), store, Access(), limits=QUICK)
    other = Store(tmp_path / "other")
    story = pulling.pull(at(registry, "amy/story"), other, Access(), name=NAME)
    assert story.digest == other.digest("back")
    assert [note.partition(":")[0] for note in story.notes] == ["it does not run here"]
    assert pulling.pull(at(registry, "amy/model"), other, Access()).notes == ()
