"""PEFT's pairs for square stacks of experts, which fit either way round: told by the other stack or by the
version that wrote them, else refused.

What PEFT adds to a stack P [E, a, b] for A [E r, x] and B [y, r E]: before 0.19.1 the transposes of B A; from
then on B A, where the module does not say `is_transposed` (GPT-OSS does in current transformers, and Llama 4
does not; both hold [E, in, out]). Seen in PEFT 0.17.1, 0.18.1, 0.19.0, 0.19.1, 0.20.0 and 0.21.2.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelkit.errors import SourceError
from modelkit.pack.adapters.filled import as_arrays, fill
from modelkit.pack.adapters.place import place
from modelkit.source.adapters.reading import read_adapter
from runtime.models import Described, describe
from runtime.nn.adapters.low_rank import LowRank, LowRanks
from tests.support.checkpoints import random_tensor
from tests.support.parity import Reference
from tests.support.peft_folders import peft_tensors, write_peft

RANK, SCALE = 3, 2.0
OWNERS = {
    "llama4": ("intermediate_size", "model.layers.1.feed_forward.experts"),
    "gpt_oss": ("intermediate_size", "model.layers.0.mlp.experts"),
    "qwen3_moe": ("moe_intermediate_size", "model.layers.0.mlp.experts"),
    "nemotron_h_latent": ("moe_intermediate_size", "model.layers.1.mixer.experts"),
    "glm4_moe": ("moe_intermediate_size", "model.layers.1.mlp.experts"),
}


def base(family: str) -> tuple[Described, str, int, int]:
    """A network whose down_proj is square, the name of its stacks' owner, their count, and the width."""
    record = Reference(family).record
    config: dict[str, Any] = dict(record["config"])
    field, owner = OWNERS[family]
    width = config.get("moe_latent_size") or config["hidden_size"]
    config[field] = width
    return describe(config), owner, record["tensors"][f"{owner}.down_proj"][0], width


def added(folder: Path, described: Described, ending: str) -> np.ndarray:
    """[E, out, in]: what comes to the module of that name."""
    filled, scales = fill(place(read_adapter(folder), described, {}), described)
    pairs = LowRanks.of(as_arrays(filled), scales).pairs
    return _delta(next(pair for name, pair in pairs.items() if name.endswith(ending)))


def _delta(pair: LowRank) -> np.ndarray:
    return np.array(pair.scale * (pair.down @ pair.up)).swapaxes(-1, -2)


def written(folder: Path, shapes: dict[str, tuple[int, ...]], **config: Any) -> dict[str, np.ndarray]:
    """An adapter with pairs of these shapes for stacks. Returns B A, times the scale, of each."""
    tensors: dict[str, np.ndarray] = {}
    products: dict[str, np.ndarray] = {}
    for name, (experts, rows, columns) in shapes.items():
        left = random_tensor(f"{name}.left", (experts, rows, RANK))
        right = random_tensor(f"{name}.right", (experts, RANK, columns))
        tensors |= peft_tensors(name, left, right)
        products[name] = np.float32(SCALE) * (left @ right)
    targets = sorted({name.rpartition("experts.")[2] for name in shapes})
    write_peft(folder, tensors, target_parameters=[f"experts.{leaf}" for leaf in targets], **config)
    return products


@pytest.mark.parametrize(
    ("family", "version", "turned"),
    [
        ("llama4", "0.18.1", False),
        ("gpt_oss", "0.18.0", False),
        ("glm4_moe", "0.18.1", True),
        ("glm4_moe", "0.19.0", True),
        ("glm4_moe", "0.19.1", False),
        ("glm4_moe", "0.21.2", False),
        ("nemotron_h_latent", "0.21.2", False),
    ],
)
def test_the_version_tells_where_it_can(family: str, version: str, turned: bool, tmp_path: Path) -> None:
    described, owner, experts, width = base(family)
    name = f"{owner}.down_proj"
    made = written(tmp_path / "lora", {name: (experts, width, width)}, peft_version=version)[name]
    got = added(tmp_path / "lora", described, ".down_proj")
    np.testing.assert_allclose(got, made.swapaxes(-1, -2) if turned else made, atol=1e-5)


@pytest.mark.parametrize("family", ["llama4", "gpt_oss", "qwen3_moe", "glm4_moe"])
@pytest.mark.parametrize("version", [None, "0.21.2", "0.19.0", "0.19.1.dev0@0123abc"])
@pytest.mark.parametrize("turned", [False, True])
def test_the_other_stack_tells(family: str, version: str | None, turned: bool, tmp_path: Path) -> None:
    described, owner, experts, width = base(family)
    wide = (experts, width, 2 * width) if turned else (experts, 2 * width, width)
    shapes = {f"{owner}.gate_up_proj": wide, f"{owner}.down_proj": (experts, width, width)}
    made = written(tmp_path / "lora", shapes, peft_version=version)[f"{owner}.down_proj"]
    got = added(tmp_path / "lora", described, ".down_proj")
    np.testing.assert_allclose(got, made.swapaxes(-1, -2) if turned else made, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "version"),
    [
        ("llama4", "0.21.2"),
        ("llama4", "0.19.0"),
        ("llama4", None),
        ("gpt_oss", "0.21.2"),
        ("qwen3_moe", "0.21.2"),  # and Qwen3-VL's are held input first, in files and in older transformers
        ("glm4_moe", None),
        ("glm4_moe", "0.19.0.dev0"),
    ],
)
def test_what_nothing_tells_is_refused_by_name(family: str, version: str | None, tmp_path: Path) -> None:
    described, owner, experts, width = base(family)
    name = f"{owner}.down_proj"
    written(tmp_path / "lora", {name: (experts, width, width)}, peft_version=version)
    with pytest.raises(SourceError, match=f"{name} is square, so A and B fit it either way round"):
        place(read_adapter(tmp_path / "lora"), described, {})


def test_a_square_pair_of_another_base_is_refused_by_its_shape(tmp_path: Path) -> None:
    described, owner, experts, width = base("glm4_moe")
    written(tmp_path / "lora", {f"{owner}.down_proj": (experts, 2 * width, 2 * width)})
    with pytest.raises(SourceError, match="shapes that the base has not"):
        place(read_adapter(tmp_path / "lora"), described, {})
