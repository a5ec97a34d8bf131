"""What a GGUF file says of a model besides weights and vocabulary: name, origin, licence, sampling, type."""

import re
from collections import Counter
from collections.abc import Collection
from typing import Any, cast

from modelkit.errors import MalformedFile
from modelkit.modelfile import Parameters
from modelkit.pack.gguf.plan import Written, is_wide
from modelkit.pack.metadata import Provenance
from modelkit.source.strict_json import read_json
from modelkit.source.tree import Files

_SAMPLING = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repeat_penalty": "penalty_repeat",
    "repeat_last_n": "penalty_last_n",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
}
"""modelkit's parameters, and llama.cpp's names for the defaults in a file."""

# LlamaFileType of llama.cpp: what most of the weights are. A label; each tensor says its own type.
_FILE_TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k": 12,
    "q4_k": 15, "q5_k": 17, "q6_k": 18, "iq2_xxs": 19, "iq2_xs": 20, "iq3_xxs": 23, "iq1_s": 24,
    "iq4_nl": 25, "iq3_s": 26, "iq2_s": 28, "iq4_xs": 30, "iq1_m": 31, "bf16": 32, "tq1_0": 36,
    "tq2_0": 37, "mxfp4": 38, "nvfp4": 39, "q1_0": 40, "q2_0": 41,
}  # fmt: skip
_QUANTIZATION_VERSION = 2

_TOLD = re.compile(
    r"general\.(?!architecture|type|name|file_type|quantization_version|alignment|sampling\.)[a-z0-9_.-]+"
)
"""Of what an imported file said of itself: all that the file to be written does not say by itself."""
_WHOLE = 1 << 32
_LONGEST_NAME = 200


def safe_name(name: str, pieces: Collection[str]) -> str:
    """A name that llama.cpp can load. It knows Phi-3 by the model's name, and fails where one of that name
    has not all of its tokens.
    """
    needed = {"</s>", "<unk>", "<s>", "<|endoftext|>"}
    return name if needed <= {*pieces} else re.sub(r"(?i)(phi)-?(?=3)", r"\1 ", name)


def kept_metadata(files: Files) -> dict[str, Any]:
    """Authors, licence, tags and the like that an imported file told; nothing of one that is damaged."""
    return {key: value for key, value in _imported(files).items() if _TOLD.fullmatch(key) and _plain(value)}


def own_name(files: Files, provenance: Provenance | None, package: str) -> str:
    """What the model is called where it comes from, by the file that was imported or by its repository; else
    as its package.
    """
    told = _imported(files).get("general.name")
    if isinstance(told, str) and told.strip() and told.isprintable() and len(told) <= _LONGEST_NAME:
        return told.strip()
    upstream = provenance.upstream if provenance else None
    return upstream.repository.rpartition("/")[2] if upstream else package


def _imported(files: Files) -> dict[str, Any]:
    path = files.get("gguf.json")
    try:
        return {} if path is None else read_json(path, nonfinite=True)
    except MalformedFile:
        return {}


def _plain(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(one, str) for one in cast("list[Any]", value))
    return isinstance(value, str) or (isinstance(value, int) and 0 <= value < _WHOLE)


def general_metadata(name: str, provenance: Provenance | None, written: list[Written]) -> dict[str, Any]:
    """`general.*` but for the architecture."""
    weights: Counter[str] = Counter()
    for one in written:
        if not is_wide(one.origin):
            weights[one.choice.type] += one.entry.nbytes
    made: dict[str, Any] = {"general.type": "model", "general.name": name}
    upstream = provenance.upstream if provenance else None
    if upstream:
        made["general.source.url"] = f"{upstream.endpoint}/{upstream.repository}"
        if upstream.licence:
            made["general.license"] = upstream.licence
    if weights:
        made["general.file_type"] = _FILE_TYPES[weights.most_common(1)[0][0]]
    made["general.quantization_version"] = _QUANTIZATION_VERSION
    return made


def unwritten_parameters(parameters: Parameters) -> list[str]:
    """Names of those that a file has no defaults for."""
    return [name for name in parameters if name not in _SAMPLING]


def sampling_metadata(parameters: Parameters) -> dict[str, Any]:
    """The package's sampling as defaults of the file."""
    given: dict[str, Any] = {**parameters.to_json()}
    found: dict[str, Any] = {}
    for ours, theirs in _SAMPLING.items():
        value = given.get(ours)
        if value is not None:
            whole = ours in ("top_k", "repeat_last_n")
            found[f"general.sampling.{theirs}"] = int(value) if whole else float(value)
    return found
