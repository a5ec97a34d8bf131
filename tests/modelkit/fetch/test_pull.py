"""What packages are called that come from other places."""

import pytest

from modelkit.address import read_address
from modelkit.fetch.pull import name_for

NAMES = {
    "hf.co/Qwen/Qwen3-8B": "qwen/qwen3-8b",
    "hf.co/Qwen/Qwen3-8B-GGUF:Q4_K_M": "qwen/qwen3-8b-gguf:q4_k_m",
    "hf.co/01.ai/Yi_1@refs/pr/3": "01-ai/yi_1:refs-pr-3",
    f"hf.co/a/b@{'0123456789' * 4}": "a/b:012345678901",
    "hf.co/a/b:q8@v1": "a/b:q8-v1",
    "hf.co/a/b-GGUF/b-Q8_0.gguf": "a/b-gguf:b-q8_0",
    "hf.co/a/b-GGUF/UD/b.IQ2_M-00002-of-00003.gguf@v1": "a/b-gguf:ud-b.iq2_m-v1",
    f"hf.co/a/{'x' * 95}": f"a/{'x' * 80}",
    "ollama.com/library/llama3.2:1b": "llama3.2:1b",
    "ollama.com/amy/story": "amy/story",
    "docker.io/ai/smollm2": "ai/smollm2",
    "oci://localhost:5000/a/b/c:Q4": "b/c:q4",
    f"oci://h.org/a@sha256:{'1' * 64}": "a:111111111111",
    "ollama:llama3.2:1b": "llama3.2:1b",
    "ollama:hf.co/org/name:Q4_K_M": "org/name:q4_k_m",
}


@pytest.mark.parametrize("text", NAMES)
def test_what_a_package_is_called(text: str) -> None:
    address = read_address(text)
    assert address is not None
    assert str(name_for(address)) == NAMES[text]


@pytest.mark.parametrize(
    ("text", "quantize", "name"),
    [
        ("hf.co/Qwen/Qwen3-8B", "q4", "qwen/qwen3-8b:q4"),
        ("hf.co/a/b@v1", "plain Q4", "a/b:v1-plain-q4"),
        ("ollama:x", "4.5 bits", "x:latest-4.5-bits"),
    ],
)
def test_what_was_quantized_is_called_so(text: str, quantize: str, name: str) -> None:
    """Else a later pull of the same address would take its name, without a word."""
    address = read_address(text)
    assert address is not None
    assert str(name_for(address, quantize)) == name
