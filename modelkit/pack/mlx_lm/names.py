"""What mlx-lm only calls otherwise: tensors, model types, wrappers, fields of the config. Numbers stay."""

from collections.abc import Callable, Mapping

from modelkit.pack.mlx_lm import experts
from modelkit.pack.mlx_lm.limits import UNKNOWN
from modelkit.pack.mlx_lm.mutable_folder import QUANTIZATION, MutableFolder
from modelkit.pack.mlx_lm.pieces import CannotFix
from modelkit.pack.planning.families import checkpoint_of
from modelkit.pack.planning.spelling import both_spellings
from runtime.tensors.checkpoint import TRUNK
from runtime.tensors.towers import unwrapped

INSIDE: Mapping[str, tuple[tuple[str, str], ...]] = {
    "gpt_neox": (("gpt_neox.layers.", "model.h."), ("gpt_neox.", "model.")),
    "gptj": (("transformer.", "model."),),
    "step3p5": (
        (".moe.gate.", ".mlp.gate.gate."),
        (".moe.", ".mlp.switch_mlp."),
        (".share_expert.", ".mlp.share_expert."),
    ),
}
"""What its class calls otherwise than any file, by model type: `sanitize` renames what is read."""

_ENDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def unprefixed(folder: MutableFolder) -> str:
    folder.rename(lambda name: name.removeprefix("transformer."))
    return "names without transformer."


def prefixed(folder: MutableFolder) -> str:
    folder.rename(lambda name: name if name.startswith("lm_head.") else f"model.{name}")
    return "names with model."


def wrapped(kind: str, inside: Callable[[str], str]) -> Callable[[MutableFolder], str]:
    def act(folder: MutableFolder) -> str:
        folder.wrap(kind, "architectures", "tie_word_embeddings", *_ENDS)
        folder.rename(inside)
        return f"as the text model of {kind}"

    return act


def gemma3n(folder: MutableFolder) -> str:
    """Layers that read another's keys have none in the files of transformers 5; mlx-lm wants some, and uses
    them only where it runs without a cache.
    """
    shared = folder.count("num_kv_shared_layers")
    layers = folder.count("num_hidden_layers")
    there = set(folder.names())
    for layer in range(layers - shared, layers):
        own, like = (f"model.layers.{place}.self_attn." for place in (layer, 0))
        for name in [name for name in there if name.startswith(like)]:
            missing = own + name.removeprefix(like)
            if missing not in there:
                piece = next(held[name] for held in folder.files.values() if name in held)
                folder.beside(name, piece.called(missing))
    return wrapped("gemma3n", lambda name: name.replace("model.", "model.language_model.", 1))(folder)


def without_towers(folder: MutableFolder) -> str:
    towers = checkpoint_of(folder.config).towers
    folder.drop(towers.has)
    return "without the towers"


def text_alone(folder: MutableFolder) -> str:
    """A wrapper that mlx-lm has no class for, as the text model in it."""
    from runtime.errors import UnsupportedModel
    from runtime.models.multimodal.alone import alone

    try:
        text = alone(folder.config)
    except UnsupportedModel as fault:
        raise CannotFix("text") from fault
    if text["model_type"] in UNKNOWN:
        raise CannotFix("text")
    without_towers(folder)
    folder.rename(_in_trunk)
    kept = (*QUANTIZATION, "dtype", "torch_dtype", *_ENDS)
    outer = {key: folder.config[key] for key in kept if key in folder.config}
    folder.config = both_spellings({**outer, **text})  # the block had a name of the wrapper's own
    return f"as {text['model_type']} alone"


def _in_trunk(name: str) -> str:
    bare = unwrapped(name)
    return bare if bare.startswith("lm_head.") else TRUNK + bare


def first_mlp(folder: MutableFolder) -> str:
    called = {f".block_sparse_moe.{part}_proj.": f".mlp.{part}_proj." for part in ("gate", "up", "down")}
    folder.rename(lambda name: replaced(name, called))
    return "names of the first MLP"


def own_names(part: str, said: str) -> Callable[[MutableFolder], str]:
    def act(folder: MutableFolder) -> str:
        called = {f".block_sparse_moe.{part}.": f".mlp.{part}."}
        folder.rename(lambda name: replaced(name, called))
        return f"names of {said}"

    return act


def matrices(folder: MutableFolder) -> str:
    called = {".self_attn.linear_attn.": ".self_attn.linear.", ".mlp.linear_mlp.": ".mlp.linear."}
    folder.rename(lambda name: replaced(name, called))
    return "names of matrices in place of sublayers"


def replaced(name: str, called: Mapping[str, str]) -> str:
    for old, new in called.items():
        name = name.replace(old, new)
    return name


def qwen3_5(kind: str) -> Callable[[MutableFolder], str]:
    def act(folder: MutableFolder) -> str:
        experts.stack(folder, "switch_mlp")
        folder.rename(lambda name: f"language_model.{name}")
        folder.say(model_type=kind)
        return f"as {kind}"

    return act


def shared(folder: MutableFolder) -> str:
    count = folder.count("num_hidden_layers")
    folder.block.update(
        model_type="granitemoehybrid",
        architectures=["GraniteMoeHybridForCausalLM"],
        layer_types=["attention"] * count,
        position_embedding_type="rope",
    )
    return "as granitemoehybrid"


def inner(folder: MutableFolder) -> str:
    folder.say(intermediate_size=folder.count("shared_intermediate_size"))
    return "shared_intermediate_size as intermediate_size"


def with_biases(folder: MutableFolder) -> str:
    folder.say(mamba_proj_bias=True)
    return "use_bias as mamba_proj_bias"
