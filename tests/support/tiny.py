"""A whole tiny model directory: weights from a seed, a byte-level tokenizer, a chat template if wanted."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.checkpoints import write_checkpoint

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}

TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def llama_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Tensor names and shapes of an untied or tied llama of that config."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head = config["head_dim"]
    rows = {
        name: config[count] * head
        for name, count in (("q", "num_attention_heads"), ("k", "num_key_value_heads"))
    }
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.{name}_layernorm.weight": (hidden,) for name in ("input", "post_attention")}
        shapes |= {
            f"{at}.self_attn.{name}_proj.weight": (rows["k" if name == "v" else name], hidden)
            for name in "qkv"
        }
        shapes[f"{at}.self_attn.o_proj.weight"] = (hidden, rows["q"])
        shapes |= {f"{at}.mlp.{name}_proj.weight": (inner, hidden) for name in ("gate", "up")}
        shapes[f"{at}.mlp.down_proj.weight"] = (hidden, inner)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes


def write_tokenizer(folder: Path, tokens: int = 256) -> None:
    """One token for each of the first `tokens` bytes; with all 256, `<end>` follows as id 256."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[:tokens]
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if tokens == 256:
        tokenizer.add_special_tokens(["<end>"])
        (folder / "tokenizer_config.json").write_text('{"eos_token": "<end>"}', encoding="utf-8")
    tokenizer.save(str(folder / "tokenizer.json"))


def write_model(
    folder: Path,
    *,
    seed: int = 0,
    template: str | None = None,
    generation: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """A model directory that `create` and `load` take. `changes` go into config.json."""
    config = {**CONFIG, **changes}
    write_checkpoint(folder, config, llama_shapes(config), seed)
    write_tokenizer(folder)
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(dict(generation)), encoding="utf-8")
    return folder
