"""The architectures that modelkit reads and writes, by their name in GGUF."""

from modelkit.source.gguf.architectures.architecture import Architecture
from modelkit.source.gguf.architectures.llama import LLAMA

TABLE: dict[str, Architecture] = {row.name: row for row in (LLAMA,)}

# Known names that FROM does not take, and why.
ELSEWHERE: dict[str, str] = {
    "clip": "this is the tower for images or sound of a model (mmproj), and FROM takes the text model's file",
    "gptoss": "Ollama's own layout of gpt-oss is not read; convert the original checkpoint with llama.cpp",
}
