"""The command line against a store of its own, and a tiny model with a byte-level tokenizer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from modelkit.cli.main import cli
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


def _shapes(layers: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (320, 64), "model.norm.weight": (64,)}
    for layer in range(layers):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.{name}_layernorm.weight": (64,) for name in ("input", "post_attention")}
        rows = {"q": 64, "k": 32, "v": 32, "o": 64}
        shapes |= {f"{at}.self_attn.{name}_proj.weight": (count, 64) for name, count in rows.items()}
        shapes |= {f"{at}.mlp.{name}_proj.weight": (128, 64) for name in ("gate", "up")}
        shapes[f"{at}.mlp.down_proj.weight"] = (64, 128)
    return shapes


def _write_tokenizer(folder: Path) -> None:
    """One token per byte, and `<end>`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<end>"}')


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models `target` and `draft`."""
    root = tmp_path_factory.mktemp("checkpoints")
    for seed, (name, layers) in enumerate((("target", 2), ("draft", 1))):
        folder = write_checkpoint(root / name, {**CONFIG, "num_hidden_layers": layers}, _shapes(layers), seed)
        _write_tokenizer(folder)
    return root


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """MODELKIT_HOME, not there yet."""
    monkeypatch.setenv("MODELKIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def modelkit(home: Path) -> Callable[..., Result]:
    """`modelkit("list", "--json")` as a shell would run it, standard input being a pipe."""

    def run(*arguments: str, stdin: str | bytes = "") -> Result:
        return CliRunner().invoke(cli, list(arguments), input=stdin, catch_exceptions=False)

    return run


@pytest.fixture
def modelfile(tmp_path: Path, checkpoints: Path) -> Callable[..., Path]:
    """Write a Modelfile that starts from the target; `lines` follow."""

    def write(*lines: str, folder: str = "My Story") -> Path:
        path = tmp_path / folder / "Modelfile"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([f"FROM {checkpoints / 'target'}", *lines]) + "\n")
        return path

    return write


@pytest.fixture
def draft_line(checkpoints: Path) -> str:
    return f"DRAFT {checkpoints / 'draft'}"


@pytest.fixture
def created(modelkit: Callable[..., Result], modelfile: Callable[..., Path]) -> Callable[..., None]:
    """Create a package of that name from the target and further lines of a Modelfile."""

    def create(name: str, *lines: str) -> None:
        result = modelkit("create", name, "-f", str(modelfile(*lines)))
        assert result.exit_code == 0, result.output

    return create
