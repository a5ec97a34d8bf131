"""What has to be written so that mlx-lm computes a model, by the sentence of `mlx_lm_limits` it takes back.

Rows are asked in the order in which the sentences hold; what follows from one (another model type) may bring
the next. Each act changes a `Sheet`, and says in a few words what it did, or raises CannotMend.
"""

import itertools
import math
from collections.abc import Callable, Mapping

import mlx.core as mx

from modelkit.pack import mlx_lm_limits as says
from modelkit.pack.families import checkpoint_of
from modelkit.pack.mlx_lm import experts, latent
from modelkit.pack.mlx_lm.pieces import CannotMend, Computed, Zeros, joined, rows
from modelkit.pack.mlx_lm.sheet import PARTS, Sheet
from modelkit.pack.planned import Output
from modelkit.units import size
from runtime.records import dataclass

_SMALL = 8  # columns of a head that is there for nothing
_ENDS = ("bos_token_id", "eos_token_id", "pad_token_id")
_EMBEDDINGS = ("embed_tokens", "embed_in", "embeddings")


@dataclass(frozen=True, slots=True)
class Mend:
    """A row."""

    families: tuple[str, ...]
    """Model types; () for all of whom the sentence is said."""
    sentence: str
    act: Callable[[Sheet], str]


def find(kinds: frozenset[str], sentence: str) -> Mend | None:
    """The row for a model of these types (of the whole, of its text model) of whom that is said."""
    for row in ROWS:
        if row.sentence == sentence and (not row.families or kinds & set(row.families)):
            return row
    return None


def _head(sheet: Sheet) -> str:
    """The embedding once more, as the head; for those to whom mlx-lm gives one always, or a packed one."""
    (table,) = sheet.modules(*_EMBEDDINGS) or [None]
    if table is None:
        raise CannotMend("embedding")
    family = "embed_out" if table.endswith("embed_in") else "lm_head"
    sheet.repeat(table, family)
    sheet.say(tie_word_embeddings=False)
    return f"the embedding is there a second time, as the output head ({size(sheet.nbytes(family))})"


def _unprefixed(sheet: Sheet) -> str:
    sheet.rename(lambda name: name.removeprefix("transformer."))
    return "names without transformer."


def _prefixed(sheet: Sheet) -> str:
    sheet.rename(lambda name: name if name.startswith("lm_head.") else f"model.{name}")
    return "names with model."


def _zero_biases(field: str, *ends: str) -> Callable[[Sheet], str]:
    def act(sheet: Sheet) -> str:
        dtype, there = sheet.floats(), set(sheet.names())
        for module in sheet.modules(*ends):
            name = f"{module}.bias"
            if name not in there:
                height = sheet.shape(f"{module}.weight")[0]
                sheet.beside(f"{module}.weight", Zeros(Output(name, dtype, (height,))))
        sheet.say(**{field: True})
        return "biases of zero"

    return act


def _wider(sheet: Sheet) -> str:
    """Inner columns of zeros: their activation is zero, whichever of gelu, relu and silu it is."""
    inner = 4 * sheet.count("hidden_size")
    for module in sheet.modules("dense_h_to_4h"):
        for name in (f"{module}.weight", f"{module}.bias"):
            tensor = sheet.tensor(name)
            more = inner - tensor.shape[0]
            if more < 0 or tensor.dtype == "U32":
                raise CannotMend(name)
            shape = (inner, *tensor.shape[1:])
            pad = [(0, more), *[(0, 0)] * (len(shape) - 1)]
            sheet.put(name, Computed(Output(name, tensor.dtype, shape), tensor, _padded(pad)))
    for module in sheet.modules("dense_4h_to_h"):
        tensor = sheet.tensor(f"{module}.weight")
        pad = [(0, 0), (0, inner - tensor.shape[1])]
        output = Output(tensor.name, tensor.dtype, (tensor.shape[0], inner))
        sheet.put(tensor.name, Computed(output, tensor, _padded(pad)))
    sheet.say(intermediate_size=inner)
    return f"MLPs are filled up with zeros to {inner:,} columns"


def _padded(pad: list[tuple[int, int]]) -> Callable[[mx.array], mx.array]:
    return lambda values: mx.pad(values, pad)


def _scaled_by_one(sheet: Sheet) -> str:
    """YaRN by 1 is no scaling."""
    length = sheet.block.get("max_position_embeddings") or 4096
    sheet.say(rope_scaling={"type": "yarn", "factor": 1.0, "original_max_position_embeddings": length})
    return "the rope is scaled by 1"


def _lifted(sheet: Sheet) -> str:
    """Corrections of the choice, all raised alike: what is chosen stays, and no score is below the zeros that
    mlx-lm gives to experts of closed groups.
    """
    corrections = [name for name in sheet.names() if name.endswith("e_score_correction_bias")]
    if not corrections:
        raise CannotMend("corrections")
    for name in corrections:
        tensor = sheet.tensor(name)
        sheet.put(name, Computed(Output(name, "F32", tensor.shape), tensor, _above_zero))
    return "corrections of the choice of experts are raised above zero, all alike"


def _above_zero(values: mx.array) -> mx.array:
    wide = values.astype(mx.float32)
    return wide + mx.maximum(2**-6 - wide.min(), 0)


def _in_pairs(sheet: Sheet) -> str:
    """Rows that are rotated as halves, in turn: queries and keys are moved alike, so products stay."""
    sizes = ("qk_rope_head_dim", "qk_nope_head_dim", "kv_lora_rank", "num_attention_heads")
    turned, kept, rank, heads = map(sheet.count, sizes)
    pairs = [place for i in range(turned // 2) for place in (i, i + turned // 2)]
    size = kept + turned
    queries = [
        head * size + row for head in range(heads) for row in (*range(kept), *(kept + p for p in pairs))
    ]
    keys = [*range(rank), *(rank + p for p in pairs)]
    for ends, order in ((("q_b_proj", "self_attn.q_proj"), queries), (("kv_a_proj_with_mqa",), keys)):
        for module in sheet.modules(*ends):
            _reorder(sheet, module, order)
    sheet.say(rope_interleave=True)
    return "rows of queries and keys are rotated as neighbours"


def _reorder(sheet: Sheet, module: str, order: list[int]) -> None:
    for part in PARTS:
        tensor = sheet.find(module + part)
        if tensor is not None:
            height = len(order) if len(tensor.shape) == 1 else None
            if tensor.shape[0] != len(order):
                raise CannotMend(tensor.name)
            sheet.put(tensor.name, rows(tensor.name, tensor, order, height))


def _multipliers(sheet: Sheet) -> str:
    """mlx-lm multiplies the other numbers into unpacked weights itself; the values' it leaves out, too."""
    if any(name.endswith(("_proj.bias", "_proj.scales")) for name in sheet.names()):
        raise CannotMend("biases")
    for end, field in (("k_proj", "key_multiplier"), ("v_proj", "attention_in_multiplier")):
        factor = sheet.number(field)
        for module in sheet.modules(f"self_attn.{end}"):
            tensor = sheet.tensor(f"{module}.weight")
            output = Output(tensor.name, tensor.dtype, tensor.shape)
            sheet.put(tensor.name, Computed(output, tensor, _times(factor)))
    sheet.say(key_multiplier=1.0)
    return "key_multiplier is multiplied into keys, attention_in_multiplier into values"


def _times(factor: float) -> Callable[[mx.array], mx.array]:
    return lambda values: values.astype(mx.float32) * factor


def _wrapped(kind: str, inside: Callable[[str], str]) -> Callable[[Sheet], str]:
    def act(sheet: Sheet) -> str:
        sheet.wrap(kind, "architectures", "tie_word_embeddings", *_ENDS)
        sheet.rename(inside)
        return f"as the text model of {kind}"

    return act


def _gemma3n(sheet: Sheet) -> str:
    """Layers that read another's keys have none in the files of transformers 5; mlx-lm wants some, and uses
    them only where it runs without a cache.
    """
    shared = sheet.count("num_kv_shared_layers")
    layers = sheet.count("num_hidden_layers")
    there = set(sheet.names())
    for layer in range(layers - shared, layers):
        own, like = (f"model.layers.{place}.self_attn." for place in (layer, 0))
        for name in [name for name in there if name.startswith(like)]:
            missing = own + name.removeprefix(like)
            if missing not in there:
                piece = next(held[name] for held in sheet.files.values() if name in held)
                sheet.beside(name, piece.called(missing))
    return _wrapped("gemma3n", lambda name: name.replace("model.", "model.language_model.", 1))(sheet)


def _without_towers(sheet: Sheet) -> str:
    towers = checkpoint_of(sheet.config).towers
    sheet.drop(towers.has)
    return "without the towers"


def _mscale(sheet: Sheet) -> str:
    """mlx-lm's YaRN multiplies by 0.1 * mscale * ln(factor) + 1."""
    scaling = dict(sheet.block.get("rope_scaling") or {})
    factor, attention = scaling.get("factor"), scaling.pop("attention_factor", None)
    yarn = (scaling.get("rope_type") or scaling.get("type")) == "yarn"
    if not yarn or attention is None or not isinstance(factor, int | float) or factor <= 1:
        raise CannotMend("rope_scaling")
    mscale = (attention - 1) / (0.1 * math.log(factor))
    sheet.say(rope_scaling={**scaling, "mscale": mscale, "mscale_all_dim": 0})
    return "attention_factor as mscale"


def _delta_nets(sheet: Sheet) -> str:
    _resplit(sheet)
    called = {
        ".attention_layer_norm.": ".input_layernorm.",
        ".feedforward_layer_norm.": ".post_attention_layernorm.",
    }
    sheet.rename(lambda name: _replaced(name, called))
    return "names of norms"


def _resplit(sheet: Sheet) -> None:
    """transformers 5 saves queries, keys and values of a delta net as equal thirds, whatever their sizes."""
    sizes = [
        sheet.count(f"linear_{heads}_head_dim") * sheet.count(f"linear_num_{heads}_heads")
        for heads in ("key", "key", "value")
    ]
    places = [0, *itertools.accumulate(sizes)]
    for module in sheet.modules("linear_attn.q_proj", "linear_attn.q_conv1d"):
        before, _, kind = module.rpartition(".q_")
        for part in PARTS:
            names = [f"{before}.{letter}_{kind}{part}" for letter in "qkv"]
            three = [sheet.find(name) for name in names]
            held = [tensor for tensor in three if tensor is not None]
            if len(held) == 3 and [tensor.shape[0] for tensor in held] != sizes:
                for name, first, last in zip(names, places, places[1:], strict=False):
                    sheet.put(name, joined(name, held, first, last))


def _first_mlp(sheet: Sheet) -> str:
    called = {f".block_sparse_moe.{part}_proj.": f".mlp.{part}_proj." for part in ("gate", "up", "down")}
    sheet.rename(lambda name: _replaced(name, called))
    return "names of the first MLP"


def _own_names(part: str, said: str) -> Callable[[Sheet], str]:
    def act(sheet: Sheet) -> str:
        called = {f".block_sparse_moe.{part}.": f".mlp.{part}."}
        sheet.rename(lambda name: _replaced(name, called))
        return f"names of {said}"

    return act


def _replaced(name: str, called: Mapping[str, str]) -> str:
    for old, new in called.items():
        name = name.replace(old, new)
    return name


def _qwen3_5(kind: str) -> Callable[[Sheet], str]:
    def act(sheet: Sheet) -> str:
        experts.stack(sheet, "switch_mlp")
        sheet.rename(lambda name: f"language_model.{name}")
        sheet.say(model_type=kind)
        return f"as {kind}"

    return act


def _shared(sheet: Sheet) -> str:
    count = sheet.count("num_hidden_layers")
    sheet.block.update(
        model_type="granitemoehybrid",
        architectures=["GraniteMoeHybridForCausalLM"],
        layer_types=["attention"] * count,
        position_embedding_type="rope",
    )
    return "as granitemoehybrid"


def _inner(sheet: Sheet) -> str:
    sheet.say(intermediate_size=sheet.count("shared_intermediate_size"))
    return "shared_intermediate_size as intermediate_size"


def _mamba2(sheet: Sheet) -> str:
    """Nemotron-H's state layers norm groups apart. Its class wants attention somewhere: the last layer is one
    whose matrices are zeros, so that it adds nothing, and as small as can be.
    """
    layers, hidden = sheet.count("num_hidden_layers"), sheet.count("hidden_size")
    if "lm_head.weight" not in sheet.names():
        _head(sheet)
    start, dtype = f"backbone.layers.{layers}", sheet.floats()
    shapes = {"norm": (hidden,), "mixer.o_proj": (hidden, _SMALL)}
    shapes |= {f"mixer.{part}_proj": (_SMALL, hidden) for part in "qkv"}
    empty = [Zeros(Output(f"{start}.{name}.weight", dtype, shape)) for name, shape in shapes.items()]
    sheet.beside("backbone.norm_f.weight", *empty)
    sheet.block.update(
        model_type="nemotron_h",
        architectures=["NemotronHForCausalLM"],
        hybrid_override_pattern=["M"] * layers + ["*"],
        mamba_num_heads=sheet.count("num_heads"),
        mamba_head_dim=sheet.count("head_dim"),
        ssm_state_size=sheet.count("state_size"),
        mamba_proj_bias=sheet.block.get("use_bias", False),
        num_hidden_layers=layers + 1,
        intermediate_size=hidden,
        max_position_embeddings=sheet.block.get("max_position_embeddings") or 1 << 20,
        **dict.fromkeys(("num_attention_heads", "num_key_value_heads"), 1),
        **dict.fromkeys(("attention_bias", "mlp_bias"), False),
        head_dim=_SMALL,
    )
    return "as nemotron_h, with a last layer that adds nothing"


def _with_biases(sheet: Sheet) -> str:
    sheet.say(mamba_proj_bias=True)
    return "use_bias as mamba_proj_bias"


ROWS: tuple[Mend, ...] = (
    Mend((), says.OWN_HEAD, _head),
    Mend((), says.PACKED_HEAD, _head),
    Mend((), says.BARE, _unprefixed),
    Mend((), says.UNNAMED, _prefixed),
    Mend((), says.QUADRUPLE, _wider),
    Mend(("gpt_neox",), says.BIASED, _zero_biases("attention_bias", "query_key_value", "attention.dense")),
    Mend(
        ("gpt_oss",),
        says.BIASED,
        _zero_biases("attention_bias", *(f"self_attn.{part}_proj" for part in "qkvo")),
    ),
    Mend(
        ("starcoder2",),
        says.BIASED_ALL,
        _zero_biases("use_bias", *(f"self_attn.{part}_proj" for part in "qkvo"), "mlp.c_fc", "mlp.c_proj"),
    ),
    Mend(("deepseek_v2",), says.SCALED, _scaled_by_one),
    Mend((), says.PACKED_TWICE, latent.apart),
    Mend((), says.GROUPS, _lifted),
    Mend(("deepseek_v3",), says.NEIGHBOURS, _in_pairs),
    Mend(("falcon_h1",), says.KEYS, _multipliers),
    Mend(("gemma3n_text",), says.NO_TYPE, _gemma3n),
    Mend(("llama4_text",), says.NO_EXPERTS, _wrapped("llama4", lambda name: f"language_model.{name}")),
    Mend(("muse_glimmer",), says.TOWER, _without_towers),
    Mend(("olmo3",), says.ATTENTION_FACTOR, _mscale),
    Mend(("olmo_hybrid",), says.NORMS, _delta_nets),
    Mend(("qwen3_5_text",), says.NO_TYPE, _qwen3_5("qwen3_5")),
    Mend(("qwen3_5_moe_text",), says.NO_TYPE, _qwen3_5("qwen3_5_moe")),
    Mend(("qwen3_vl_moe",), says.INPUT_FIRST, experts.halves),
    Mend(("granitemoehybrid",), says.INNER, _inner),
    Mend(("granitemoeshared",), says.NO_TYPE, _shared),
    Mend(("kimi_linear",), says.FIRST_MLP, _first_mlp),
    Mend(("mamba2",), says.STATE_GROUPS, _mamba2),
    Mend(("kimi_linear",), says.PACKED_SHARED, _own_names("shared_experts", "shared experts")),
    Mend(("kimi_linear",), says.STACKED, _own_names("switch_mlp", "stacked experts")),
    Mend(("nemotron_h",), says.UNBIASED_STATES, _with_biases),
    Mend(("gpt_oss",), says.PACKED_EXPERTS, experts.in_turn),
)
