import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelkit.errors import StoreError
from modelkit.fetch.upstream import Upstream, bare_endpoint, read_upstream
from modelkit.modelfile import Parameters
from modelkit.pack.metadata import DraftFacts, Metadata, Provenance, read_metadata
from modelkit.store.digest import Blob, Digest

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
PROVENANCE = st.builds(
    Provenance,
    st.none() | st.sampled_from(["q4", "mxfp8"]),
    st.dictionaries(TEXT, st.binary(max_size=3).map(Digest.of), max_size=2),
    st.none()
    | st.builds(Upstream, st.just("hub"), st.just("https://hf.co"), st.sampled_from(["a/b", "C/d"])),
)
METADATA = st.builds(
    Metadata,
    parameters=st.builds(lambda t: Parameters({"temperature": t}), st.floats(0, 2)) | st.just(Parameters()),
    system=st.none() | TEXT.filter(bool),
    messages=st.lists(st.tuples(st.sampled_from(["user", "assistant"]), TEXT), max_size=3).map(tuple),
    own_template=st.booleans(),
    renderer=st.none() | TEXT,
    parser=st.none() | TEXT,
    requires=st.none() | st.just("0.1.0"),
    draft=st.none() | st.builds(DraftFacts, TEXT),
    provenance=st.none() | PROVENANCE,
    draft_provenance=st.none() | PROVENANCE,
)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(metadata=METADATA)
def test_what_is_written_is_read_back(tmp_path: Path, metadata: Metadata) -> None:
    path = tmp_path / "modelkit.json"
    path.write_bytes(metadata.to_bytes())
    assert read_metadata(path, "p") == metadata


def test_a_package_without_the_file_has_an_empty_recipe() -> None:
    assert read_metadata(None, "p") == Metadata()


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"version": 2},
        {"version": 1, "system": 3},
        {"version": 1, "messages": {}},
        {"version": 1, "messages": [3]},
        {"version": 1, "messages": [{"role": "robot", "content": "x"}]},
        {"version": 1, "messages": [{"role": "user"}]},
        {"version": 1, "parameters": {"nonsense": 1}},
        {"version": 1, "draft": "x"},
        {"version": 1, "provenance": []},
        {"version": 1, "provenance": {"target": {"sources": {"a": "sha256:../x"}}}},
    ],
)
def test_hostile_content_is_one_clear_error(tmp_path: Path, value: object) -> None:
    path = tmp_path / "modelkit.json"
    path.write_text(json.dumps(value))
    with pytest.raises(StoreError, match=r"p/modelkit\.json cannot be used"):
        read_metadata(path, "p")


def test_where_files_were_fetched_from_is_read_back() -> None:
    blob = Blob(Digest("ab" * 32), 7)
    upstream = Upstream(
        "hub", "https://huggingface.co", "Qwen/Qwen3-8B", "main", "c" * 40, licence="mit", files={"a": blob}
    )
    assert read_upstream(upstream.to_json()) == upstream
    assert upstream.address == f"hf.co/Qwen/Qwen3-8B@{'c' * 40}"


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "pigeon"},
        {"endpoint": None},
        {"repository": "a\nb"},
        {"commit": 7},
        {"files": []},
        {"files": {"a": {"digest": "sha256:1", "size": 1}}},
        {"files": {"a": {"digest": "sha256:" + "0" * 64, "size": -1}}},
    ],
)
def test_an_upstream_that_we_do_not_write_is_refused(change: dict[str, object]) -> None:
    with pytest.raises((ValueError, StoreError)):
        read_upstream({"kind": "hub", "endpoint": "https://hf.co", "repository": "a/b", **change})


def test_a_server_is_recorded_without_a_password() -> None:
    assert (
        bare_endpoint("https://amy:hunter2@hub.example.org:8080/x/?token=1")
        == "https://hub.example.org:8080/x"
    )
