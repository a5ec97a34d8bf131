"""What a text means that somebody writes for a model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.address import (
    Address,
    HubAddress,
    OllamaAddress,
    RegistryAddress,
    is_address,
    looks_like_path,
    read_address,
    read_pullable,
)
from modelkit.errors import InvalidName

QWEN = "Qwen/Qwen3-8B"
DIGEST = "sha256:" + "0" * 64
DOCKER, OLLAMA = "registry-1.docker.io", "registry.ollama.ai"

MEANINGS: dict[str, Address] = {
    "hf.co/Qwen/Qwen3-8B": HubAddress(QWEN),
    "HF.co/Qwen/Qwen3-8B": HubAddress(QWEN),
    "hf.co/Qwen/Qwen3-8B:Q4_K_M": HubAddress(QWEN, "Q4_K_M"),
    "hf.co/Qwen/Qwen3-8B@v1.0": HubAddress(QWEN, None, "v1.0"),
    "hf.co/Qwen/Qwen3-8B:q8_0@refs/pr/3": HubAddress(QWEN, "q8_0", "refs/pr/3"),
    "hf.co/Qwen/Qwen3-8B@main/sub/m.gguf": HubAddress(QWEN, None, "main", "sub/m.gguf"),
    "hf.co/Qwen/Qwen3-8B/m.gguf": HubAddress(QWEN, file="m.gguf"),
    "hf.co/Qwen/Qwen3-8B@feature/x": HubAddress(QWEN, None, "feature/x"),
    "hf.co/Qwen/Qwen3-8B@feature%2Fx/m.gguf": HubAddress(QWEN, None, "feature/x", "m.gguf"),
    "hf.co/Qwen/Qwen3-8B/a/m.gguf@feature/x": HubAddress(QWEN, None, "feature/x", "a/m.gguf"),
    "hf.co/Qwen/Qwen3-8B@feature/x:Q8_0": HubAddress(QWEN, "Q8_0", "feature/x"),
    "https://hf.co/Qwen/Qwen3-8B/blob/a%2Fb/c%20d/m.gguf": HubAddress(QWEN, None, "a/b", "c d/m.gguf"),
    "https://hf.co/Qwen/Qwen3-8B/tree/a%2Fb": HubAddress(QWEN, None, "a/b"),
    "hf://Qwen/Qwen3-8B@abc": HubAddress(QWEN, None, "abc"),
    "hf:Qwen/Qwen3-8B": HubAddress(QWEN),
    "huggingface.co/Qwen/Qwen3-8B": HubAddress(QWEN),
    "https://huggingface.co/Qwen/Qwen3-8B": HubAddress(QWEN),
    "https://huggingface.co/Qwen/Qwen3-8B/": HubAddress(QWEN),
    "https://huggingface.co/Qwen/Qwen3-8B/tree/v2?x=1": HubAddress(QWEN, None, "v2"),
    "https://hf.co/Qwen/Qwen3-8B/blob/main/a/m.gguf": HubAddress(QWEN, None, "main", "a/m.gguf"),
    "https://hf.co/Qwen/Qwen3-8B/raw/main/m.gguf": HubAddress(QWEN, None, "main", "m.gguf"),
    "https://hf.co/Qwen/Qwen3-8B/commit/0a1b2c": HubAddress(QWEN, None, "0a1b2c"),
    "https://hf.co/Qwen/Qwen3-8B/commits/v2": HubAddress(QWEN, None, "v2"),
    "hf.co/Qwen/Qwen3-8B/tree/a/m.gguf": HubAddress(QWEN, file="tree/a/m.gguf"),
    "hf://Qwen/Qwen3-8B/resolve/main/m.gguf": HubAddress(QWEN, file="resolve/main/m.gguf"),
    "hf.co/Qwen/Qwen3-8B/blob/m.gguf@v1": HubAddress(QWEN, None, "v1", "blob/m.gguf"),
    "https://hf.co/Qwen/Qwen3-8B/blob/main/tree/m.gguf": HubAddress(QWEN, None, "main", "tree/m.gguf"),
    "https://hf.co/Qwen/Qwen3-8B/resolve/v1/blob/a/m.gguf": HubAddress(QWEN, None, "v1", "blob/a/m.gguf"),
    "hf.co/Qwen/Qwen3-8B/a%40b/c%3Ad.gguf@v1": HubAddress(QWEN, None, "v1", "a@b/c:d.gguf"),
    "hf.co/Qwen/Qwen3-8B@v1/a%40b.gguf": HubAddress(QWEN, None, "v1", "a@b.gguf"),
    "hf.co/Qwen/Qwen3-8B/a%2540b%20c.gguf": HubAddress(QWEN, file="a%40b%20c.gguf"),
    "https://hf.co/Qwen/Qwen3-8B/blob/main/a@b/c%40d.gguf": HubAddress(QWEN, None, "main", "a@b/c@d.gguf"),
    "ollama.com/library/llama3.2:1b": RegistryAddress(OLLAMA, "library/llama3.2", "1b", None, "ollama"),
    "ollama.com/llama3.2": RegistryAddress(OLLAMA, "library/llama3.2", None, None, "ollama"),
    "https://ollama.com/amy/Story:Q4": RegistryAddress(OLLAMA, "amy/story", "Q4", None, "ollama"),
    "docker.io/ai/smollm2": RegistryAddress(DOCKER, "ai/smollm2"),
    "docker.io/smollm2:360m": RegistryAddress(DOCKER, "library/smollm2", "360m"),
    "oci://localhost:5000/amy/story:q4": RegistryAddress("localhost:5000", "amy/story", "q4"),
    f"oci://example.org/a/b/c/d@{DIGEST}": RegistryAddress("example.org", "a/b/c/d", None, DIGEST),
    "oci://docker.io/ai/x": RegistryAddress(DOCKER, "ai/x"),
    "ollama:llama3.2": OllamaAddress("library/llama3.2"),
    "ollama:amy/story:q4": OllamaAddress("amy/story", "q4"),
    "ollama:hf.co/org/name:Q4_K_M": OllamaAddress("hf.co/org/name", "Q4_K_M"),
}


@pytest.mark.parametrize("text", MEANINGS)
def test_an_address_has_one_meaning(text: str) -> None:
    assert read_address(text) == MEANINGS[text]
    assert not looks_like_path(text)


@pytest.mark.parametrize("text", MEANINGS)
def test_an_address_is_read_back_from_what_is_shown_of_it(text: str) -> None:
    assert read_address(str(MEANINGS[text])) == MEANINGS[text]


@pytest.mark.parametrize(
    "text",
    [
        *("story", "story:q4", "amy/story", "Qwen/Qwen3-8B", "llama3.2:1b", "hf:q4", "a/b/c", "hf.co", ""),
        *("example.org:5000/amy/story", "./hf.co/a/b", "../x", "/hf.co/a/b", "~/m.gguf", "m.gguf"),
    ],
)
def test_names_and_paths_are_no_addresses(text: str) -> None:
    assert read_address(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "hf.co/",
        "hf.co/gpt2",
        "hf.co/datasets/amy/text",
        "hf.co/a/..",
        "hf.co/../b",
        "hf.co/a/b/../../c",
        "hf.co/a/b/x\\y",
        "hf.co/a/b:",
        "hf.co/a/b:q4:q8",
        "hf.co/a/b@",
        "hf.co/a/b@../x",
        "hf.co/a/b@main@main",
        "hf.co/a/b c",
        "hf.co/a/b:q\u0131",
        "http://[",
        "https://example.org/model.zip",
        "https://huggingface.co:1/a/b",
        "ftp://hf.co/a/b",
        "file:///etc/passwd",
        "oci://host",
        "oci://host/UPPER/case",
        "oci://host/a:",
        "oci://host/a@sha256:12",
        "oci:///a",
        "oci://a b/c",
        "oci://h/a//b",
        "oci://h/../b",
        "docker.io/",
        "ollama:",
        "ollama:../x",
        "ollama:a/b/c/d",
    ],
)
def test_a_bad_address_is_refused_by_what_is_wrong_with_it(text: str) -> None:
    assert is_address(text)
    with pytest.raises(InvalidName):
        read_address(text)


@pytest.mark.parametrize("host", ["huggingface.co", "example.org", "huggingface.co/x"])
def test_a_password_is_not_repeated(host: str) -> None:
    for text in (
        f"https://amy:hunter2@{host}/a/b",
        f"oci://amy:hunter2@{host}/a/b",
        f"x://amy:hunter2@{host}",
    ):
        with pytest.raises(InvalidName) as caught:
            read_address(text)
        assert "hunter2" not in str(caught.value)


def test_where_something_is_to_be_fetched_a_host_before_a_slash_is_a_registry() -> None:
    assert read_pullable("ghcr.io/amy/story:q4") == RegistryAddress("ghcr.io", "amy/story", "q4")
    assert read_pullable("localhost:5000/story") == RegistryAddress("localhost:5000", "story")
    assert read_pullable("Qwen/Qwen3-8B") is None
    assert read_pullable("./a.b/c") is None


@given(st.text(max_size=80) | st.text("hf.co/:@-_QA0 \\", max_size=30).map("hf.co/".__add__))
def test_any_text_is_an_address_or_none_or_refused(text: str) -> None:
    try:
        address = read_address(text)
    except InvalidName:
        return
    if address is not None:
        assert read_address(str(address)) == address
