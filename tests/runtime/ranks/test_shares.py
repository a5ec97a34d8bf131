"""Families through several ranks on loopback, beside one process with the whole model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.cpu import native
from tests.support import sharing
from tests.support.ranks import Standing

Crews = Callable[[int], Standing]

# Grouped heads, windows, chunks, sandwiched norms, parallel blocks, one matrix for three, MLA, experts of
# every kind, recurrent layers of several kinds, two memories a layer, tied heads, learned positions, passes.
STAGED = (
    "llama4",
    "qwen3",
    "gemma2",
    "cohere2",
    "gpt2",
    "gemma4_moe",
    "phi3_window",
    "qwen2_moe",
    "gpt_oss",
    "qwen3_next",
    "nemotron_h",
    "lfm2_moe",
    "inkling2_loop_text",
)
OLDER = "bloom", "mpt", "gpt_bigcode", "gpt_neo", "openai_gpt", "opt_350m"
"""With ALiBi, learned positions, projected embeddings."""
ALIBI = "bloom", "mpt_clipped", "falcon_rw_parallel"
# Of three layers, or with layers that take more than the stream of earlier ones: too few for four stages.
HALVED = (
    *("deepseek_v3", "falcon_h1", "mamba", "kimi_linear", "gemma4_text", "gemma3n", "glm_moe_dsa_shared"),
    *(
        "deepseek_v4",
        "mistral_large4_plain",
        "iquest_loop",
        "ouro",
        "rwkv7",
        "talkie",
        "zamba2",
        "mllama",
        "zaya",
    ),
    *("dory_biases", "nanbeige", "hunyuan_large", "grove_moe", "rwkv6", "xlstm"),
)
READERS = (
    "bart",
    "m2m_100",
    "marian",
    "mbart",
    "t5",
    "t5_v1_1",
    "umt5",
    "t5gemma",
    "t5gemma2",
    "t5gemma_biases",
)
"""Whose prompts an encoder reads."""
DEEPER = "rwkv7 of 4", "t5 of 4"
"""With as many layers."""
# Whose layers exchange what stands between their matrices, too.
INSIDE = (
    *("mamba_biases", "falcon_mamba", "mamba2", "jamba", "granitemoehybrid_dense", "plamo2", "gemma3n"),
    *("bitnet_biases", "minimax", "ling2_5", "olmo2", "olmoe", "minimax_m2", "zamba2"),
    "molmo2_olmo",
)
# Whose layers are computed in parts on one rank, too.
IN_PARTS = (
    *(
        "rwkv_halved",
        "rwkv5",
        "rwkv6",
        "xlstm",
        "rwkv7",
        "ring_linear",
        "bailing_hybrid",
        "kimi_k3",
        "mistral_large4",
        "baichuan_m1",
        "muse_spark",
    ),
    *("jetmoe_three", "dory", "talkie", "zaya", "hunyuan_large", "grove_moe", "smallthinker", "arctic"),
)
SHARED = (
    *STAGED,
    *("deepseek_v3", "falcon_h1", "laguna", "lfm3", "kimi_linear", "falcon_7b", "falcon_11b", "falcon_40b"),
    *(
        "gpt_bigcode",
        "gpt_bigcode_heads",
        "gpt_neox",
        "codegen",
        "opt",
        "glm_moe_dsa_shared",
        "axk2",
        "deepseek_v4",
    ),
    *ALIBI,
    *READERS,
    *("afmoe", "dbrx", "granitemoe_swa", "hy_v3", "minicpm3", "nanochat", "persimmon", "xglm"),
    *(
        "hy_v4",
        "minimax_m3",
        "iquest_loop",
        "ouro_window",
        "inkling2_text",
        "inkling_text",
        "starcoder2",
    ),
    *("phi3small", "gemma4_text", "recurrent_gemma_wide", "mllama", *INSIDE, *IN_PARTS),
    "nanbeige",
)
PAIRED = (
    "t5",
    "t5gemma",
    "rwkv7",
    "zamba2",
    "gemma2",
    "qwen2_moe",
    "qwen3_next",
    "deepseek_v3",
    "iquest_loop",
    "ouro",
    "dory",
    "inkling2_loop_text",
)
# Rounding of sums in another order, as share of the largest logit.
BAR = 1e-4


def shares(crew: Standing, folder: Path, shards: int, names: tuple[str, ...], form: str = "floats") -> Any:
    """What rank 0 found. Every rank holds what the plan said, within a hundredth, and the last norm and what
    joins streams, which all ranks of the first stage have.
    """
    found = crew.do(folder, sharing.__name__, "found", shards, form, *names)
    as_planned(found)
    return found[0]


def as_planned(found: list[dict[str, Any]]) -> None:
    for rank in found:
        for name, one in rank.items():
            assert one["bytes"] == pytest.approx(one["planned"], rel=0.01, abs=5000), name


@pytest.mark.parametrize(("size", "names"), [(2, STAGED + HALVED + OLDER + READERS), (4, STAGED + DEEPER)])
def test_stages_give_the_bits_of_one_process(
    crews: Crews, tmp_path: Path, size: int, names: tuple[str, ...]
) -> None:
    found = shares(crews(size), tmp_path, 1, names)
    assert {name: one["same"] for name, one in found.items()} == dict.fromkeys(names, True)


@pytest.fixture(scope="module")
def halves(crews: Crews, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks found of families that they have half of."""
    return crews(2).do(tmp_path_factory.mktemp("halves"), sharing.__name__, "found", 2, "floats", *SHARED)


def test_halves_give_the_logits_of_one_process(halves: list[dict[str, Any]]) -> None:
    as_planned(halves)
    are_the_logits_of_one_process(halves[0])


def test_quarters_give_the_logits_of_one_process(crews: Crews, tmp_path: Path) -> None:
    are_the_logits_of_one_process(shares(crews(4), tmp_path, 4, SHARED[3:]))


def are_the_logits_of_one_process(found: dict[str, Any]) -> None:
    assert {name: one["off"] for name, one in found.items() if one["off"] > BAR} == {}
    assert all(one["again"] for one in found.values()), "other bits where the prompt was cut otherwise"


@pytest.mark.skipif(native.kernels is None, reason=f"there are no kernels: {native.status.reason}")
def test_layers_that_are_shared_are_computed_together(halves: list[dict[str, Any]]) -> None:
    """Sums in them and what is done behind the last one must not take them apart. Gemma 4 has norms behind
    the experts and behind what always answers, so two sums; layers of DBRX, Kimi, Falcon 40B, Phi-3
    small and Inkling and those with indexers or ALiBi are computed in parts on one rank, too.
    """
    indexed = "glm_moe_dsa_shared", "axk2", "deepseek_v4", "hy_v4", "minimax_m3"
    clipped = "phi3small", "inkling_text", "inkling2_text", "inkling2_loop_text"
    single = *READERS, "mllama", "dbrx", "gemma4_moe", "kimi_linear", "falcon_40b"
    apart = *single, *clipped, *indexed, *ALIBI, *INSIDE, *IN_PARTS
    names = tuple(name for name in SHARED if name not in apart)
    assert [[rank[name]["alone"] for name in names] for rank in halves] == [[0] * len(names)] * 2


def test_stages_of_shards_give_the_bits_of_as_many_shards(
    crews: Crews, tmp_path: Path, halves: list[dict[str, Any]]
) -> None:
    more = tuple(name for name in PAIRED if name not in halves[0])
    alone = halves[0] | (shares(crews(2), tmp_path, 2, more) if more else {})
    found = shares(crews(4), tmp_path, 2, PAIRED)
    assert {name: one["bits"] for name, one in found.items()} == {
        name: alone[name]["bits"] for name in PAIRED
    }
    assert all(one["again"] for one in found.values()), "other bits where the prompt was cut otherwise"


def test_stages_of_shards_exchange_long_messages_in_their_order(crews: Crews, tmp_path: Path) -> None:
    found = crews(4).do(tmp_path, sharing.__name__, "in_turns", "gemma2")[0]["gemma2"]
    assert found["off"] < BAR


@pytest.mark.parametrize("form", ["packed", "ordered", "blocks"])
@pytest.mark.parametrize(("shards", "bar"), [(1, 0.0), (2, 100 * BAR)])
def test_packed_weights_are_cut_between_groups(
    crews: Crews, tmp_path: Path, shards: int, bar: float, form: str
) -> None:
    names = ("llama", "qwen3_moe", "phi3_window", "glm4_moe")
    found = shares(crews(2), tmp_path, shards, names[::2] if form == "blocks" else names, form)
    assert {name: one["off"] for name, one in found.items() if one["off"] > bar} == {}


def test_what_ternary_matrices_read_is_rounded_by_the_largest_of_all(crews: Crews, tmp_path: Path) -> None:
    """By that of each rank's own numbers answers would be off by more than twice as much as is allowed."""
    found = shares(crews(2), tmp_path, 2, ("bitnet",), "ternary")["bitnet"]
    assert found["off"] < 1e-2
    assert found["again"]


# Grouped heads, one matrix for three, MLA by heads, experts, recurrent layers, two memories, windows.
ADAPTED = (
    "qwen3",
    "phi3_window",
    "deepseek_v3",
    "qwen2_moe",
    "qwen3_next",
    "falcon_h1",
    "kimi_linear",
    "llama4",
    "falcon_mamba",
    "muse_spark_layers",
    "t5",
    "umt5",
    "t5gemma_biases",
)


def test_adapters_are_cut_for_stages_of_shards(crews: Crews, tmp_path: Path) -> None:
    found = crews(4).do(tmp_path, sharing.__name__, "adapted", 2, "floats", "qwen3_next")[0]
    assert found["qwen3_next"] < BAR


def test_adapters_come_with_a_copy_of_what_they_are_added_to(crews: Crews, tmp_path: Path) -> None:
    """A stage runs a block that a layer of another one has, and another stage's layers look back."""
    names = "zamba2", "rwkv7", "t5_v1_1"
    assert crews(2).do(tmp_path, sharing.__name__, "adapted", 1, "floats", *names)[0] == dict.fromkeys(
        names, 0
    )


@pytest.mark.parametrize(("shards", "bar"), [(1, 0.0), (2, BAR)])
def test_rows_with_other_adapters_answer_as_in_one_process(
    crews: Crews, tmp_path: Path, shards: int, bar: float
) -> None:
    """LoRA behind everything that takes a pair, and DoRA; several in one batch."""
    found = crews(2).do(tmp_path, sharing.__name__, "adapted", shards, "floats", *ADAPTED)[0]
    assert {name: off for name, off in found.items() if off > bar} == {}


def test_adapters_of_packed_weights_are_cut_alike(crews: Crews, tmp_path: Path) -> None:
    found = crews(2).do(tmp_path, sharing.__name__, "adapted", 2, "packed", "llama", "qwen3_moe")[0]
    assert {name: off for name, off in found.items() if off > 100 * BAR} == {}
