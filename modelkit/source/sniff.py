"""What a file really is, from its first bytes, whatever its name says.

A name is often wrong by accident: a Git-LFS pointer that was never fetched, an error page
saved as weights, a pickle renamed. The first bytes tell, and the message says what to do. Nothing here opens
a file.
"""

import re

from modelkit.errors import MalformedFile, UnsupportedSource
from runtime.quoting import shown

HEAD_BYTES = 512

PICKLE_HINT = (
    "Pickles can run code, so they are never opened. Convert the model to safetensors "
    "(transformers: `model.save_pretrained(folder, safe_serialization=True)`)."
)
GGUF_HINT = "A GGUF file is a model by itself. Name it: FROM path/to/model.gguf"
_GGML_HINT = (
    "llama.cpp left GGML for GGUF in August 2023. Take the model's safetensors or GGUF; of a Llama "
    "its convert_llama_ggml_to_gguf.py makes GGUF."
)

_MADE_FROM = "Use the safetensors files that it was made from."
_DISTCP_HINT = (
    "Training wrote them in parts. Merge these (`accelerate merge-weights`, or torch's "
    "`dcp_to_torch_save`) and save the model as safetensors."
)
_FLAX_HINT = "Convert the model to safetensors (transformers 4: `from_pretrained(..., from_flax=True)`)."
_TENSORFLOW_HINT = "Convert the model to safetensors (transformers 4: `from_pretrained(..., from_tf=True)`)."

_IS_GGML = re.compile(r"(?:.*[-_.])?ggml(?:v\d)?[-_.].*\.bin|.+\.ggml", re.IGNORECASE)
_CUT = re.compile(r"(.+\.gguf)([.-](?:part|split))\W?\w+", re.ASCII)  # by `split`, not llama.cpp
_LFS = b"version https://git-lfs.github.com/spec/"

_MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"GGUF", "a GGUF file", GGUF_HINT),
    *((magic, "a GGML file", _GGML_HINT) for magic in (b"lmgg", b"fmgg", b"tjgg", b"algg")),
    (b"PK\x03\x04", "a ZIP archive, as PyTorch writes its pickles", PICKLE_HINT),
    (b"PK\x05\x06", "an empty ZIP archive", PICKLE_HINT),
    (b"\x80\x02", "a Python pickle", PICKLE_HINT),
    (b"\x80\x03", "a Python pickle", PICKLE_HINT),
    (b"\x80\x04", "a Python pickle", PICKLE_HINT),
    (b"\x80\x05", "a Python pickle", PICKLE_HINT),
    (b"\x89HDF\r\n", "an HDF5 (Keras) file", "Convert the model to safetensors."),
    (b"\x93NUMPY", "a NumPy array file", "Convert the model to safetensors."),
    (b"\x1f\x8b", "a gzip archive", "Unpack it first."),
)

_PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_OTHER_WEIGHTS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (_PICKLE_SUFFIXES, "Python pickles", PICKLE_HINT),
    ((".gguf",), "GGUF", GGUF_HINT),
    ((".h5", ".hdf5", ".keras"), "Keras (HDF5)", "Convert the model to safetensors."),
    ((".onnx", ".onnx_data"), "ONNX", _MADE_FROM),
    ((".npz", ".npy"), "NumPy arrays", "Convert the model to safetensors."),
    ((".distcp",), "PyTorch's distributed checkpoints", _DISTCP_HINT),
    ((".litertlm", ".litert", ".tflite", ".task"), "LiteRT", _MADE_FROM),
    ((".mlmodel", ".mlpackage", ".mlmodelc"), "Core ML", _MADE_FROM),
    ((".pb", ".ckpt.index"), "TensorFlow", _TENSORFLOW_HINT),
    (
        (".msgpack",),
        "Flax",
        _FLAX_HINT,
    ),
    ((".ot",), "another framework's weights", "Convert the model to safetensors."),
)


def is_cut(name: str) -> bool:
    """Is it a part of a GGUF file, by its name? The first one begins as a whole file does."""
    return _CUT.fullmatch(name) is not None


def weights_kind(name: str) -> tuple[str, str] | None:
    """For a file whose name is that of weights modelkit does not read: what they are, and what to do."""
    lowered = name.lower()
    if cut := _CUT.fullmatch(name):
        whole = shown(cut[1])
        return "parts of a GGUF file", f"Join them in their order: cat {whole}{cut[2]}* > {whole}"
    if _IS_GGML.fullmatch(name):
        return "GGML", _GGML_HINT
    for suffixes, kind, hint in _OTHER_WEIGHTS:
        if lowered.endswith(suffixes):
            return kind, hint
    return None


def refuse_stand_in(head: bytes, label: str) -> None:
    """Raise MalformedFile when `head` starts what stands in for the real file: an LFS pointer, a web page."""
    if head.startswith(_LFS):
        raise MalformedFile(
            f"{label} is a Git-LFS pointer, not the file itself",
            hint="Run `git lfs pull` in the model's repository.",
        )
    if head[:HEAD_BYTES].lstrip().lower().startswith((b"<!doctype", b"<html")):
        raise MalformedFile(f"{label} is a web page, not the file itself", hint="Download the file again.")


def refuse_other_weights(head: bytes, label: str, *, wanted: str = "safetensors") -> None:
    """Raise when `head` starts another kind of weights file than the `wanted` one."""
    for magic, kind, hint in _MAGIC:
        if head.startswith(magic):
            raise UnsupportedSource(f"{label} is {kind}, not {wanted}", hint=hint)


def describe(head: bytes) -> str:
    """The first bytes, for a message."""
    return shown(head[:16].decode("latin-1"))
