"""What models consist of, from headers alone."""

from pathlib import Path
from typing import Any

import pytest

from runtime.errors import CannotCut, WeightMismatch
from runtime.loading.forecast import foresee
from runtime.ranks.parts import Remembered, parts_of
from runtime.ranks.plan import Host, decide
from tests.support.parity import Reference

GB = 10**9
HIDDEN, INNER, EXPERTS, LAYERS, VOCABULARY = 6144, 2560, 128, 64, 151_936

# 400 billion weights of which 17 billion answer a token, 8 bits each: 64 layers of 128 experts.
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 12288,
    "moe_intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": EXPERTS,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "max_position_embeddings": 262_144,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": False,
    "quantization": {"bits": 8, "group_size": 64, "mode": "affine"},
}

Headers = dict[str, tuple[str, tuple[int, ...]]]


def matrix(name: str, *shape: int) -> Headers:
    *before, columns = shape
    small = ("BF16", (*before, columns // 64))
    return {
        f"{name}.weight": ("U32", (*before, columns // 4)),
        f"{name}.scales": small,
        f"{name}.biases": small,
    }


def headers() -> Headers:
    """Of a package as `create` writes it: experts stacked, matrices packed in 8 bits."""
    found = matrix("model.embed_tokens", VOCABULARY, HIDDEN) | matrix("lm_head", VOCABULARY, HIDDEN)
    found["model.norm.weight"] = "BF16", (HIDDEN,)
    for i in range(LAYERS):
        at = f"model.layers.{i}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{at}.{name}.weight"] = "BF16", (HIDDEN,)
        for name in ("q_norm", "k_norm"):
            found[f"{at}.self_attn.{name}.weight"] = "BF16", (128,)
        for name, rows in (("q_proj", 8192), ("k_proj", 512), ("v_proj", 512)):
            found |= matrix(f"{at}.self_attn.{name}", rows, HIDDEN)
        found |= matrix(f"{at}.self_attn.o_proj", HIDDEN, 8192) | matrix(f"{at}.mlp.gate", EXPERTS, HIDDEN)
        for name in ("gate_proj", "up_proj"):
            found |= matrix(f"{at}.mlp.switch_mlp.{name}", EXPERTS, INNER, HIDDEN)
        found |= matrix(f"{at}.mlp.switch_mlp.down_proj", EXPERTS, HIDDEN, INNER)
    return found


FOUR_MACS = [Host(f"mac-{i}", 512 * GB) for i in range(4)]
LONG = Remembered(tokens=131_072, sequences=4)


def test_400_billion_weights_in_stages_on_four_macs() -> None:
    model = parts_of(CONFIG, headers(), memory=LONG)
    plan = decide(model, FOUR_MACS)
    plan.check_room()
    assert [(share.start, share.stop) for share in plan.shares] == [(0, 16), (16, 32), (32, 48), (48, 64)]
    assert sum(share.weight_bytes for share in plan.shares) == foresee(CONFIG, headers()).weight_bytes
    assert 400 * GB < sum(share.weight_bytes for share in plan.shares) < 440 * GB
    one = 2 * 4 * 128 * 2 * LAYERS  # keys and values of a token, in bfloat16
    assert sum(share.memory_bytes for share in plan.shares) == one * LONG.tokens * LONG.sequences


def test_400_billion_weights_in_shards_on_four_macs() -> None:
    model = parts_of(CONFIG, headers(), shards=4, memory=LONG)
    assert model.whole == ()
    plan = decide(model, FOUR_MACS)
    plan.check_room()
    staged = decide(parts_of(CONFIG, headers(), memory=LONG), FOUR_MACS)
    first, *others = plan.shares
    assert {(share.start, share.stop) for share in plan.shares} == {(0, LAYERS)}
    assert first.weight_bytes > others[0].weight_bytes, "rank 0 has the head besides"
    # Tables, norms and routers are on every rank, all else on one: 1 % more than in stages.
    whole = sum(share.weight_bytes for share in staged.shares)
    assert whole < sum(share.weight_bytes for share in plan.shares) < 1.01 * whole
    assert len({share.memory_bytes for share in plan.shares}) == 1
    assert 4 * first.memory_bytes == sum(share.memory_bytes for share in staged.shares)


def test_no_host_with_room_is_too_little_room() -> None:
    plan = decide(parts_of(CONFIG, headers()), [Host("a", 96 * GB), Host("b", 96 * GB)])
    assert min(share.wanted_bytes for share in plan.shares) > 96 * GB


def of_reference(name: str, **more: Any) -> Any:
    record = Reference.called(name).record
    tensors = {key: ("F32", tuple(shape)) for key, shape in record["tensors"].items()}
    return parts_of(record["config"], tensors, **more)


def test_encoders_that_read_texts_whole_are_refused_by_name() -> None:
    with pytest.raises(CannotCut, match="BertModel cannot be cut: it is an encoder, which reads texts whole"):
        of_reference("bert")


def test_an_encoder_is_cut_with_the_decoder() -> None:
    """T5's first layers have the biases of all, so each stage has a copy; T5Gemma's two have tables each."""
    for name in ("t5", "umt5", "t5gemma"):
        model = of_reference(name, memory=Remembered(tokens=99))
        assert model.encoder is not None
        assert len(model.encoder.copies) == len(model.copies) == (name == "t5")
        assert {layer.memory_bytes for layer in model.encoder.layers} == {0}
        plan = decide(model, [Host("a"), Host("b")])
        assert [share.reads for share in plan.shares] == [(0, 1), (1, 3)]
        record = Reference.called(name).record
        tensors = {key: ("F32", tuple(shape)) for key, shape in record["tensors"].items()}
        whole = foresee(record["config"], tensors).weight_bytes
        copied = sum(copy.weight_bytes[0] for copy in (*model.copies, *model.encoder.copies))
        assert sum(share.weight_bytes for share in plan.shares) == whole + copied


def test_an_encoder_of_too_few_layers_is_named() -> None:
    model = of_reference("t5")
    with pytest.raises(CannotCut, match="ConditionalGeneration's encoder has 3 layers, too few for 4 stages"):
        decide(model, [Host("")] * 4)


@pytest.mark.parametrize("shards", [2, 4])
def test_of_encoders_nothing_stays_whole(shards: int) -> None:
    assert of_reference("t5", shards=shards).whole == of_reference("umt5", shards=shards).whole == ()
    said = of_reference("t5", shards=3).whole
    assert [
        one for one in said if one.startswith("the encoder's 3 layers from 0 to 2: layer.0.SelfAttention")
    ]


def test_what_makes_more_of_a_token_for_each_layer_is_on_every_rank() -> None:
    model = of_reference("gemma4_text")
    assert model.everywhere_bytes > 0
    plan = decide(model, [Host("a"), Host("b")])
    assert min(share.weight_bytes for share in plan.shares) > model.everywhere_bytes
    assert of_reference("gemma4_moe").everywhere_bytes == 0, "it has no second table"


def test_layers_that_read_the_memory_of_others_stay_with_them() -> None:
    model = of_reference("gemma4_text")
    assert model.joined
    start = decide(model, [Host("a"), Host("b")]).shares[1].start
    assert start not in model.joined


def test_layers_that_read_the_memory_of_others_have_the_same_heads_of_it() -> None:
    whole, half = (
        of_reference("gemma4_text", shards=shards, memory=Remembered(tokens=99)) for shards in (1, 2)
    )
    taken = [layer.memory_bytes for layer in whole.layers]
    assert min(taken[:3]) > 0
    assert taken[3:] == [0, 0, 0]
    assert [2 * layer.memory_bytes for layer in half.layers] == taken


def test_layers_of_one_memory_that_cannot_be_split_alike_are_refused() -> None:
    """The first one's closing matrix has groups of more columns than the heads of a rank have."""
    record = Reference.called("gemma4_text").record
    tensors = {key: ("F32", tuple(shape)) for key, shape in record["tensors"].items()}
    packed = matrix("model.layers.1.self_attn.o_proj", 64, 128)
    scales = ("F32", (64, 1))
    for name in packed:
        packed[name] = scales if name.endswith(("scales", "biases")) else packed[name]
    config = {**record["config"], "quantization": {"bits": 8, "group_size": 128}}
    with pytest.raises(CannotCut, match="layer 3 reads an earlier one's memory, and is split in another way"):
        parts_of(config, tensors | packed, shards=2)


def test_a_block_that_layers_of_several_stages_run_is_in_each() -> None:
    """Of five layers the second and the third have one, and the last one runs the second's."""
    model = of_reference("zamba2")
    (copy,) = model.copies
    assert (copy.owner, copy.readers) == (1, (4,))
    plan = decide(model, [Host("a"), Host("b")])
    assert 1 < plan.shares[1].start <= 4
    record = Reference.called("zamba2").record
    tensors = {key: ("F32", tuple(shape)) for key, shape in record["tensors"].items()}
    whole = foresee(record["config"], tensors).weight_bytes
    taken = sum(share.weight_bytes for share in plan.shares)
    assert taken == whole + copy.weight_bytes[0] + model.everywhere_bytes


def test_layers_stay_with_the_one_whose_choice_they_look_at() -> None:
    assert of_reference("glm_moe_dsa_shared").joined == {1, 3}
    assert of_reference("glm_moe_dsa").joined == set(), "its layers choose for themselves"
    assert of_reference("glm_moe_dsa_shared", shards=2).whole == ()


def test_sublayers_that_cannot_be_shared_are_named() -> None:
    with pytest.raises(CannotCut, match=r"mixer \(Mamba2\): 8 heads are not a multiple of 3"):
        of_reference("mamba2", shards=3)
    (said,) = of_reference("diffllama", shards=2).whole
    assert "self_attn (DifferentialAttention): it is not known how its lambda_k1 is split" in said
    (said,) = of_reference("gear", shards=2).whole
    assert "self_attn (Mixer): it is not known how it is split" in said
    (said,) = of_reference("muse_spark_layers", shards=3).whole[-1:]
    assert "experts are not a multiple of 3" in said


@pytest.mark.parametrize(
    "name",
    [
        *("lfm2", "jamba", "plamo2", "falcon_mamba", "mamba2", "granitemoehybrid_dense", "recurrent_gemma"),
        *("rwkv7", "minimax", "ring_linear", "bailing_hybrid", "olmo2", "olmoe", "minimax_m2", "bitnet"),
        *("mistral_large4", "deepseek_v4", "baichuan_m1", "muse_spark"),
    ],
)
def test_of_these_nothing_stays_whole(name: str) -> None:
    assert of_reference(name, shards=2).whole == ()


def test_convolved_keys_are_remembered_in_parts() -> None:
    """Of a layer whose two groups of keys are for two ranks; what its answers pass stays whole."""
    whole, half = (
        of_reference("inkling2_text", shards=shards, memory=Remembered(tokens=99)).layers[0].memory_bytes
        for shards in (1, 2)
    )
    assert whole / 2 < half < 0.8 * whole


def test_heads_that_do_not_divide_stay_whole() -> None:
    (said,) = of_reference("qwen3", shards=3).whole
    assert "8 heads are not a multiple of 3" in said or "4 heads are not a multiple of 3" in said


def test_the_documentation_counts_what_can_be_cut() -> None:
    def cut(name: str, shards: int) -> bool:
        try:
            decide(of_reference(name, shards=shards), [Host("")] * 2)
        except CannotCut:
            return False
        return True

    names = Reference.names()
    stages, shards = (sum(cut(name, count) for name in names) for count in (1, 2))
    page = (Path(__file__).resolve().parents[3] / "docs" / "ranks.md").read_text(encoding="utf-8")
    assert f"{shards} of {len(names)} can be cut into two shards, and {stages} into two stages" in page


def test_tensors_that_do_not_fit_are_refused_as_by_loading() -> None:
    some = headers()
    del some["model.layers.3.self_attn.q_proj.weight"]
    with pytest.raises(WeightMismatch, match="q_proj"):
        parts_of(CONFIG, some)
