"""Rotation: `rope.*` keys and the tensor `rope_freqs` on one side, `rope_parameters` on the other."""

from collections.abc import Mapping
from typing import Any, cast

from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.llama3 import TRAINED, llama3_block, llama3_factors
from modelkit.source.gguf.architectures.settings import Special
from runtime.nn.positions.rope_spec import yarn_scale
from runtime.quoting import quoted
from runtime.records import dataclass

FREQS = "rope_freqs.weight"

_YARN = (
    ("rope.scaling.yarn_ext_factor", "extrapolation_factor"),
    ("rope.scaling.yarn_attn_factor", "attention_factor"),
    ("rope.scaling.yarn_beta_fast", "beta_fast"),
    ("rope.scaling.yarn_beta_slow", "beta_slow"),
)

_NEEDED = {"linear": ("factor",), "llama3": ("factor", "low_freq_factor", "high_freq_factor")}


def rope_block(facts: Facts) -> dict[str, Any]:
    """The config's rotation in the spelling of transformers 5, whichever it has."""
    block = facts.get("rope_parameters", "rope_scaling", default={})
    found = _stated(block)
    found.setdefault("rope_type", found.get("type", "default"))
    theta = facts.get("rope_theta", "rotary_emb_base")
    if theta is not None:
        found.setdefault("rope_theta", theta)
    partial = facts.get("partial_rotary_factor", "rotary_pct")
    if partial is not None:
        found.setdefault("partial_rotary_factor", partial)
    rotated = facts.count("rotary_dim")
    if rotated:
        found.setdefault("partial_rotary_factor", rotated / facts.head_dim)
    return found


def _stated(block: Any) -> dict[str, Any]:
    """A block without what is null."""
    told = cast("Mapping[str, Any]", block) if isinstance(block, Mapping) else {}
    return {name: value for name, value in told.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Rope:
    """One rotation for all layers."""

    theta: float = 10000.0
    """transformers' default."""
    dimensions: bool = True
    """Does the file say how many numbers of a head are rotated?"""
    partial: float = 1.0
    """transformers' default of the rotated share."""
    silent: bool = False
    """Does the converter write nothing, so that the base has to be llama.cpp's 10000?"""
    mscale: bool = False
    """Has the file a key of its own for YaRN's `mscale_all_dim`?"""

    def read(self, file: Reading) -> None:
        block: dict[str, Any] = {"rope_theta": file.number("rope.freq_base", 10000.0)}
        block |= read_scaling(file)
        size = file.config.get("head_dim") or Facts(file.config).head_dim
        rotated = file.count("rope.dimension_count", size)
        if not 0 < rotated <= size:
            file.refuse(f"`{file.full('rope.dimension_count')}` is {rotated}, and a head has {size} numbers")
        if rotated != size or self.partial != 1.0:
            block["partial_rotary_factor"] = rotated / size
        file.config["rope_parameters"] = block

    def write(self, out: Writing) -> None:
        block = rope_block(out.facts)
        base = float(block.get("rope_theta", self.theta))
        if not (self.silent and base == 10000.0):
            out.put("rope.freq_base", base)
        write_scaling(out, {**block, "rope_theta": base}, mscale=self.mscale)
        if self.dimensions:
            share = block.get("partial_rotary_factor", self.partial)
            out.put("rope.dimension_count", int(out.facts.head_dim * share))


def read_scaling(file: Reading, rotated: int | None = None) -> dict[str, Any]:
    """`rope_type` and what belongs to it. rotated: how many numbers of a head, if not all, have factors."""
    kind = file.get("rope.scaling.type", str) or "linear"  # as llama.cpp takes it
    factor, older = file.get("rope.scaling.factor"), file.get("rope.scale_linear")
    factor = (older if factor is None else factor) or None
    original = file.get("rope.scaling.original_context_length", int)
    more = {name: file.get(key) for key, name in _YARN}
    if FREQS in file.shapes:
        return _llama3(file, kind, factor, rotated or Facts(file.config).head_dim)
    if kind == "none" or (kind == "linear" and factor in (None, 1.0)):
        return {"rope_type": "default"}
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn" and factor is None:
        file.unsupported(
            f"the rotation is scaled by yarn, and `{file.full('rope.scaling.factor')}` is missing"
        )
    if kind != "yarn":
        file.unsupported(
            f"`{file.full('rope.scaling.type')}` is {quoted(kind)}; none, linear and yarn are known here"
        )
    if original is not None:
        more[TRAINED] = original
    if more.pop("extrapolation_factor") not in (None, 1.0):
        file.unsupported(f"`{file.full('rope.scaling.yarn_ext_factor')}` is not 1, which is not computed")
    return {"rope_type": "yarn", "factor": factor} | {k: v for k, v in more.items() if v is not None}


def write_scaling(out: Writing, block: Mapping[str, Any], *, mscale: bool = False) -> None:
    """mscale: is YaRN's `mscale_all_dim` told apart? Else it becomes the factor that follows from it."""
    kind = block.get("rope_type", "default")
    for name in _NEEDED.get(kind, ()):
        if name not in block:
            out.refuse(f"rope_type is {quoted(kind)}, and {name} is not told")
    if kind == "llama3":
        told = {**block, TRAINED: block.get(TRAINED) or out.facts.count("max_position_embeddings")}
        out.extra[FREQS] = llama3_factors(told, out.facts.head_dim)
    elif kind == "linear":
        out.put("rope.scaling.type", "linear")
        out.put("rope.scaling.factor", float(block["factor"]))
    elif kind == "yarn":
        _write_yarn(out, block, mscale=mscale)
    elif kind != "default":
        out.refuse(f"rope_type {quoted(kind)} is not written for {out.architecture}")


def _write_yarn(out: Writing, block: Mapping[str, Any], *, mscale: bool) -> None:
    positions = out.facts.count("max_position_embeddings")
    original = int(block.get(TRAINED) or positions)
    factor = float(block.get("factor") or positions / max(original, 1))
    told = dict(block)
    scale, whole = block.get("mscale"), block.get("mscale_all_dim")
    if scale and whole and not mscale and told.get("attention_factor") is None:
        told["attention_factor"] = yarn_scale(factor, scale) / yarn_scale(factor, whole)
    out.put("rope.scaling.type", "yarn")
    out.put("rope.scaling.factor", factor)
    out.put("rope.scaling.original_context_length", original)
    for key, name in _YARN:
        if told.get(name) is not None:
            out.put(key, float(told[name]))


def _llama3(file: Reading, kind: str, factor: float | None, rotated: int) -> dict[str, Any]:
    """Llama 3's rotation, told by its factors. Behind those of what is rotated there may be ones."""
    file.used_tensors.add(FREQS)
    stored = [float(number) for number in file.values(FREQS)]
    if kind not in ("none", "linear") or (kind == "linear" and factor not in (None, 1.0)):
        file.unsupported(f"`{FREQS}` stands beside a rotation that is scaled, {quoted(kind)} by {factor}")
    if all(number == 1.0 for number in stored):
        return {"rope_type": "default"}
    if 2 * len(stored) < rotated or any(number != 1.0 for number in stored[rotated // 2 :]):
        file.refuse(f"`{FREQS}` has {len(stored)} numbers, and {rotated} of a head are rotated")
    base = file.number("rope.freq_base", 10000.0)
    if base <= 0:
        file.refuse(f"`{file.full('rope.freq_base')}` is {base}; a number above 0 was expected")
    found = llama3_block(stored[: rotated // 2], base, file.count("context_length"))
    if found is None:
        file.unsupported(f"the factors in `{FREQS}` are not Llama 3's with any parameters")
    return found


def read_sections(file: Reading) -> None:
    """How the rotated pairs are dealt to time, height and width; text takes all of them alike."""
    told = file.get("rope.dimension_sections")
    if isinstance(told, list):
        file.config["rope_parameters"]["mrope_section"] = told[:-1] if told[-1:] == [0] else told


def write_sections(out: Writing) -> None:
    told = (out.facts.get("rope_parameters", "rope_scaling", default={}) or {}).get("mrope_section")
    if told:
        out.put("rope.dimension_sections", [*told, 0, 0, 0, 0][:4])


SECTIONS = Special(read_sections, write_sections)


@dataclass(frozen=True, slots=True)
class TwoRopes:
    """A rotation for layers that see everything, and a plain one for those with a window."""

    theta: float
    """transformers' default of the first."""
    window_theta: float | None
    """llama.cpp's and transformers' default of the second; None: that of the first."""

    def read(self, file: Reading) -> None:
        base = file.number("rope.freq_base", 10000.0)
        window = file.get("rope.freq_base_swa")
        size = file.config.get("head_dim") or Facts(file.config).head_dim
        for key in ("rope.dimension_count", "rope.dimension_count_swa"):
            if file.count(key, size) != size:
                file.unsupported(
                    f"`{file.full(key)}` is not the {size} numbers of a head, which is not computed"
                )
        default = base if self.window_theta is None else self.window_theta
        file.config["rope_parameters"] = {
            "full_attention": {"rope_theta": base} | read_scaling(file),
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": default if window is None else window,
            },
        }

    def write(self, out: Writing) -> None:
        full, window = rope_blocks(out.facts)
        base = float(full.get("rope_theta", self.theta))
        out.put("rope.freq_base", base)
        write_scaling(out, {**full, "rope_theta": base})
        if window.get("rope_type", "default") != "default":
            out.refuse("layers with a window have a rotation that is scaled, which GGUF cannot say")
        default = base if self.window_theta is None else self.window_theta
        out.put("rope.freq_base_swa", float(window.get("rope_theta", default)))


def rope_blocks(facts: Facts) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rotations of layers that see everything and of those with a window."""
    block = facts.get("rope_parameters", default={}) or {}
    full, window = block.get("full_attention"), block.get("sliding_attention")
    if isinstance(full, Mapping) or isinstance(window, Mapping):
        return _stated(full), _stated(window)
    one = rope_block(facts)
    local = facts.get("rope_local_base_freq")
    return one, {} if local is None else {"rope_theta": local}
