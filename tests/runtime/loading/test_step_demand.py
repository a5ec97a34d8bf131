"""What a step works with, foreseen from shapes."""

import mlx.core as mx
import pytest

from runtime.cache.layout import SCAN_CHUNK
from runtime.loading.step_demand import StepDemand, step_demand
from tests.support.parity import Reference, described


def foreseen(name: str, *, by_kernels: bool = True) -> StepDemand:
    what = described(name)
    return step_demand(what.network(), what.layout, what.hidden_size, 4, by_kernels=by_kernels)


def test_what_matrices_and_the_convolution_make_of_a_token_is_held() -> None:
    config = Reference("mamba2").record["config"]
    inner = config["num_heads"] * config["head_dim"]
    channels = inner + 2 * config["n_groups"] * config["state_size"]
    hidden = config["hidden_size"]
    opened = inner + channels + config["num_heads"]
    assert foreseen("mamba2").token_bytes == 4 * (opened + hidden + 2 * channels + 3 * hidden)


def test_of_each_kind_of_sublayer_there_is_one_set_however_many_layers() -> None:
    config = Reference("llama").record["config"]
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"] + 2 * config["num_key_value_heads"]
    attention = heads * hidden // config["num_attention_heads"] + hidden
    assert foreseen("llama").token_bytes == 4 * (attention + 2 * inner + hidden + 3 * hidden)


def test_blocks_that_layers_share_are_counted_once() -> None:
    assert foreseen("zamba2").token_bytes < 2 * foreseen("zamba2_plain").token_bytes


@pytest.mark.parametrize("name", ["jamba", "zamba2", "qwen3_5", "mamba", "rwkv7"])
def test_without_kernels_scans_hold_a_chunk_of_states(name: str) -> None:
    demand = foreseen(name, by_kernels=False)
    assert foreseen(name).scan_bytes == 0 < demand.scan_bytes
    assert demand.of(2 * SCAN_CHUNK) - demand.of(SCAN_CHUNK) == SCAN_CHUNK * demand.token_bytes


def test_packed_matrices_make_as_much_of_a_token_as_numbers() -> None:
    from mlx import nn

    what = described("llama")
    network = what.network()
    plain = step_demand(network, what.layout, what.hidden_size, 4, by_kernels=True)
    nn.quantize(network, group_size=32, bits=4)
    mx.eval(network.parameters())
    assert step_demand(network, what.layout, what.hidden_size, 4, by_kernels=True) == plain
