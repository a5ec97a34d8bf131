"""Tiny checkpoints from a seed: the same weights here and in the reference implementation, so none need to be
stored.

A tensor's values depend on its name, its shape and the seed only. Scales are chosen so that a random network
is lively: every layer moves the hidden state and attention is neither flat nor frozen.
"""

import json
import re
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

# (pattern on the tensor's name, centre, spread); spread None: 1 / sqrt(fan in), which keeps activations near
# one.
RULES: tuple[tuple[str, float, float | None], ...] = (
    (r"norm\w*\.weight$|layernorm\w*\.weight$|norm_f\.weight$", 1.0, 0.1),
    (r"_norm_weight$|\.[qk]_weight$", 1.0, 0.1),  # PLaMo 2's
    (r"\.x_[rwkvag]$", 0.5, 0.3),  # RWKV-7's, as the next two
    (r"\.k_[ka]$", 0.8, 0.2),
    (r"\.time_maa_w[12]$", 0.0, 0.05),  # RWKV-6's, as the next two
    (r"\.time_decay_w[12]$", 0.0, 0.1),
    (r"\.time_maa_\w$", 0.5, 0.3),
    (r"\.time_faaaa$", 0.5, 0.5),
    (r"\.time_(?:mix_\w+)$", 0.5, 0.3),  # RWKV-4's, as the next two
    (r"\.time_decay$", -1.0, 1.0),
    (r"\.time_first$", 0.5, 0.5),
    (r"w_lora\.lora\.2\.bias$", -2.0, 1.5),
    (r"softmax_scaling\.scale$", 0.3, 0.1),  # Mistral Large 4's, as the next two
    (r"softmax_scaling\.bias$", 0.5, 0.2),
    (r"rotary_emb\.alpha$", 0.0, 0.3),
    (r"states_scale$|residual_scale$|qk_norm\.temp$", 1.0, 0.2),  # ZAYA's, as the next one
    (r"balancing_biases$", 0.0, 0.05),
    (r"self_attn\.A$", 0.0, 0.3),  # Doge's
    (r"x_proj_weight$", 0.0, 0.08),  # Zamba's, as the next one: a wild state tells little
    (r"dt_proj_bias$", -2.0, 0.3),
    (r"bias$", 0.0, 0.1),
    (r"embed\w*\.weight$|embeddings\.weight$|^shared\.weight$", 0.0, 1.0),
    (r"Attention\.q\.weight$", 0.0, 0.05),  # T5's scores are not scaled
    (r"A_log$", 0.5, 0.3),
    (r"dt_bias$", -1.0, 0.5),
    (r"\.D$", 1.0, 0.1),
    (r"sinks$", 0.0, 1.0),
    (r"lambda_[qk]\d$", 0.0, 0.3),
    (r"\.sqk$|\.s_gate$|\.lambda_[12]$|lm_head\.logit_scale$", 0.0177, 0.005),  # Dory's, as the next
    (r"\.suv_(gate|up)$", 1.0, 0.2),
    (r"adapter_list", 0.0, 0.05),  # low-rank pairs that a whole matrix stands beside
    (r"layers\.\d+\.linear\.weight$", 0.0, 0.02),  # Zamba 2: what shared blocks add would drown the rest
)


@lru_cache(maxsize=4096)
def random_tensor(name: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """float32 values for one tensor of a checkpoint; int64 for a table of experts. Not to be written into:
    many models have a tensor of the same name and shape, and the next one is given the same array.
    """
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if name.endswith("tid2eid"):  # of each id, some of eight experts
        found = np.ascontiguousarray(rng.standard_normal((shape[0], 8)).argsort(axis=1)[:, : shape[1]])
    else:
        centre, spread = next((row[1:] for row in RULES if re.search(row[0], name)), (0.0, None))
        if spread is None:
            spread = 1.5 / np.sqrt(shape[-1] if len(shape) > 1 else 1.0)
        found = np.asarray(centre + spread * rng.standard_normal(shape), dtype=np.float32)
    found.flags.writeable = False
    return found


def random_state(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    """All tensors of a checkpoint."""
    return {name: random_tensor(name, tuple(shape), seed) for name, shape in shapes.items()}


def write_checkpoint(
    folder: Path, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], seed: int = 0
) -> Path:
    """A model directory with config.json and model.safetensors. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)), encoding="utf-8")
    save_file(random_state(shapes, seed), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def save_fp8(
    path: Path,
    floats: dict[str, np.ndarray],
    codes: dict[str, np.ndarray],
    more: Mapping[str, tuple[str, np.ndarray]] = {},
) -> None:
    """A safetensors file by hand: numpy has no eight-bit float. more: of other types."""
    header, data = dict[str, Any](), b""
    kinds = dict.fromkeys(codes, "F8_E4M3") | {name: kind for name, (kind, _) in more.items()}
    arrays = {**floats, **codes, **{name: array for name, (_, array) in more.items()}}
    for name, array in arrays.items():
        plain = "U8" if array.dtype == np.uint8 else "F32"
        dtype, start = kinds.get(name, plain), len(data)
        data += array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [start, len(data)]}
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)


# By model_type, where the family's older name of a field is not the usual one.
_OLDER = {"gpt_neox": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}}


def legacy_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same config as files from before transformers 5 spell it."""
    old = dict(config)
    if "dtype" in old:
        old["torch_dtype"] = old.pop("dtype")
    rope = old.get("rope_parameters")
    if isinstance(rope, Mapping) and "rope_type" in rope:
        del old["rope_parameters"]
        scaling = dict(rope)
        old["rope_theta"] = scaling.pop("rope_theta", 10000.0)
        if "partial_rotary_factor" in scaling:
            old["partial_rotary_factor"] = scaling.pop("partial_rotary_factor")
        old["rope_scaling"] = None if scaling.get("rope_type") == "default" else scaling
    own = _OLDER.get(str(config.get("model_type")), {})
    return {own.get(name, name): value for name, value in old.items()}
