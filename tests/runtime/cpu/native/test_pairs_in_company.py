"""Adapters of several ranks behind packed matrices of many strips, the last of which is not whole: a row has
the same bits one token at a time, at once, in chunks, and in company, by every column and number of threads.
"""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from runtime.cpu import native

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from runtime.nn.adapters.adapter import Adapter, logical_shape
from runtime.nn.adapters.low_rank import LowRank, LowRanks
from runtime.nn.adapters.rows import Members, RowAdapters
from runtime.nn.adapters.stacks import AdapterStacks
from runtime.nn.linear import MATRICES
from runtime.nn.operations import ops
from tests.runtime.cpu.native.rows import computing, normal
from tests.support.same_bits import Batch, at_once, in_chunks, one_by_one

kernels = native.kernels
WIDTH, INNER, TOKENS, LENGTH, ROWS = 192, 560, 60, 40, 12
"""Products of 192 (six strips), 96 (three) and 560 outputs (eighteen, the last one a half)."""
RANKS = (7, 16, 40)


def made() -> LoadedModel:
    """A llama of two layers in 4 bits; what is too odd for that is in bf16."""
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": WIDTH,
        "vocab_size": TOKENS,
        "intermediate_size": INNER,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
    }
    tables = {"model.embed_tokens": (TOKENS, WIDTH), "lm_head": (TOKENS, WIDTH)}
    shapes = {
        "self_attn.q_proj": (WIDTH, WIDTH),
        "self_attn.k_proj": (96, WIDTH),
        "self_attn.v_proj": (96, WIDTH),
        "self_attn.o_proj": (WIDTH, WIDTH),
        "mlp.gate_proj": (INNER, WIDTH),
        "mlp.up_proj": (INNER, WIDTH),
        "mlp.down_proj": (WIDTH, INNER),
    }
    for layer in range(2):
        tables |= {f"model.layers.{layer}.{name}": shape for name, shape in shapes.items()}
    weights = {
        f"{name}.weight": mx.array(normal(*shape, seed=seed, spread=shape[1] ** -0.5))
        for seed, (name, shape) in enumerate(tables.items())
    }
    for layer in range(2):
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{layer}.{name}.weight"] = mx.ones(WIDTH)
    weights["model.norm.weight"] = mx.ones(WIDTH)
    model = load_model(config, weights)
    nn.quantize(
        model.network, 64, 4, class_predicate=lambda _, m: type(m) is nn.Linear and not m.weight.shape[1] % 64
    )
    for module in model.network.modules():
        if type(module) is nn.Linear:
            module.weight = module.weight.astype(mx.bfloat16)
    return model


def an_adapter(model: LoadedModel, rank: int) -> Adapter:
    pairs: dict[str, LowRank] = {}
    for seed, (name, module) in enumerate(model.network.named_modules()):
        if type(module) in MATRICES and "layers" in name:
            out, width = logical_shape(module)
            down = normal(width, rank, seed=rank + seed, spread=width**-0.5)
            up = normal(rank, out, seed=100 + rank + seed, spread=0.5)
            pairs[name] = LowRank(mx.array(down).astype(mx.bfloat16), mx.array(up).astype(mx.bfloat16))
    return Adapter(model.network, LowRanks(pairs), model.dtype)


def same(got: np.ndarray, wanted: np.ndarray) -> bool:
    return np.array_equal(got.view(np.uint32), wanted.view(np.uint32))


def test_a_row_has_the_same_bits_however_it_is_read() -> None:
    random = np.random.default_rng(3)
    with ops.using("cpu"):
        model = made()
        adapters = [an_adapter(model, rank) for rank in RANKS]
        stacks = AdapterStacks(adapters)
        members: list[Members] = [
            (((adapters[row % 3], 1.0),), ((adapters[row % 3], 0.7), (adapters[(row + 1) % 3], -0.5)), ())[
                row // 4
            ]
            for row in range(ROWS)
        ]
        rows = [[int(token) for token in random.integers(1, TOKENS, LENGTH)] for _ in range(ROWS)]
        looked_at = (0, 1, 2, 5, 6)
        with computing("plain", 1):
            wanted = {
                row: at_once(model, rows[row], lambda _, row=row: RowAdapters(stacks, [members[row]]))
                for row in looked_at
            }
            assert not same(wanted[0], at_once(model, rows[0])), "adapters add something"
        for column in kernels.columns():
            for threads in (1, 2):
                with computing(column, threads):
                    for row in looked_at:

                        def own(_: int, row: int = row) -> RowAdapters:
                            return RowAdapters(stacks, [members[row]])

                        ways = [in_chunks(model, rows[row], own, (33, 64)), at_once(model, rows[row], own)]
                        if column != "plain" and threads == 1:
                            ways.append(one_by_one(model, rows[row], own))
                        assert all(same(way, wanted[row]) for way in ways), (column, threads, row)
                    for widths in ((LENGTH,), (1, 7, 32)):
                        batch = Batch(model, rows, lambda _: RowAdapters(stacks, members))
                        for width in widths:
                            batch.feed([width] * ROWS)
                        answers = batch.answers()
                        assert all(same(answers[row], wanted[row]) for row in looked_at), (
                            column,
                            threads,
                            widths,
                        )
