import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelkit.errors import StoreError
from modelkit.modelfile import Parameters
from modelkit.pack.metadata import DraftFacts, Metadata, Provenance, read_metadata
from modelkit.store.digest import Digest

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
PROVENANCE = st.builds(
    Provenance,
    st.none() | st.sampled_from(["q4", "mxfp8"]),
    st.dictionaries(TEXT, st.binary(max_size=3).map(Digest.of), max_size=2),
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
