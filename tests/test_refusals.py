"""Wrong input of every kind ends in one clear line, and the store is as it was."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modelkit.cli.main import cli
from tests.support.tiny import write_model

Break = Callable[[Path], object]


def _edit_config(**changes: object) -> Break:
    def edit(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return edit


def _write(name: str, text: str) -> Break:
    return lambda folder: (folder / name).write_text(text)


def _rename(old: str, new: str) -> Break:
    return lambda folder: (folder / old).rename(folder / new)


def _remove(name: str) -> Break:
    return lambda folder: (folder / name).unlink()


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 123\n"

# what is done to a good model directory, and what the message must name
SOURCES: dict[str, tuple[Break, str]] = {
    "unknown architecture": (_edit_config(architectures=["NovelForCausalLM"]), "NovelForCausalLM"),
    "unknown activation": (_edit_config(hidden_act="snake"), "hidden_act"),
    "unknown rope": (_edit_config(rope_scaling={"rope_type": "spiral"}), "spiral"),
    "absurd layer count": (_edit_config(num_hidden_layers=10**9), "num_hidden_layers"),
    "another width": (_edit_config(intermediate_size=256), "gate_proj"),
    "a layer too many": (_edit_config(num_hidden_layers=3), "layers.2"),
    "code in the config": (_edit_config(model_file="model.py"), "model.py"),
    "no config": (_remove("config.json"), "config.json"),
    "config is not json": (_write("config.json", "{"), "config.json"),
    "no weights": (_remove("model.safetensors"), "safetensors"),
    "an lfs pointer": (_write("model.safetensors", LFS), "lfs"),
    "pickles only": (_rename("model.safetensors", "pytorch_model.bin"), "pytorch_model.bin"),
    "gguf only": (_rename("model.safetensors", "model.gguf"), "GGUF"),
    "no tokenizer": (_remove("tokenizer.json"), "tokenizer.json"),
    "tokenizer is not json": (_write("tokenizer.json", "{"), "tokenizer.json"),
    "missing shard": (
        _write(
            "model.safetensors.index.json",
            json.dumps({"weight_map": {"model.norm.weight": "model-2.safetensors"}}),
        ),
        "model-2.safetensors",
    ),
    "escaping shard": (
        _write(
            "model.safetensors.index.json",
            json.dumps({"weight_map": {"model.norm.weight": "../x.safetensors"}}),
        ),
        "../x.safetensors",
    ),
    "gptq": (_edit_config(quantization_config={"quant_method": "gptq", "bits": 4}), "GPTQ"),
    "awq": (_edit_config(quantization_config={"quant_method": "awq", "bits": 4}), "AWQ"),
    "bitsandbytes": (_edit_config(quantization_config={"quant_method": "bitsandbytes"}), "bitsandbytes"),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("good") / "model")


@pytest.fixture
def store(tmp_path: Path, good: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store with one package; afterwards it must hold exactly the same bytes."""
    home = tmp_path / "home"
    monkeypatch.setenv("MODELKIT_HOME", str(home))
    (tmp_path / "Modelfile").write_text(f"FROM {good}\n")
    assert _run("create", "kept", "-f", str(tmp_path / "Modelfile")).exit_code == 0
    before = _content(home / "store")
    yield tmp_path
    assert _content(home / "store") == before


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)


def _content(folder: Path) -> dict[str, bytes]:
    """Every file that counts; the memory of source digests may grow."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in files
        if path.parent.name == "sha256"
        or path.name in ("index.json", "oci-layout")
        or path.parent.name == "ingest"
    }


def _refused(result: Result, says: str) -> None:
    lines = [line for line in result.stderr.splitlines() if line and not line.startswith("note:")]
    assert result.exit_code == 1, result.output
    assert lines[0].startswith("Error: ")
    assert len(lines) <= 2, "one line, and one that says what to do"
    assert says.lower() in result.stderr.lower()


@pytest.mark.parametrize(
    ("directive", "kind"),
    # A draft may take its target's tokenizer.
    [("FROM", kind) for kind in SOURCES] + [("DRAFT", kind) for kind in SOURCES if kind != "no tokenizer"],
)
def test_a_broken_source(kind: str, directive: str, store: Path, good: Path) -> None:
    damage, says = SOURCES[kind]
    shutil.copytree(good, store / "broken")
    damage(store / "broken")
    lines = {"FROM": "FROM ./broken\n", "DRAFT": f"FROM {good}\nDRAFT ./broken\n"}
    (store / "Modelfile").write_text(lines[directive])
    _refused(_run("create", "new", "-f", str(store / "Modelfile"), "--quantize", "q8"), says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no FROM"),
        ("FORM ./x\n", "FROM"),
        ("FROM ./nowhere\n", "nowhere"),
        ("FROM nowhere\n", "nowhere"),
        ("FROM ./good\nDRAFT ./nowhere\n", "nowhere"),
        ("FROM ./good\nPARAMETER temperatur 1\n", "temperature"),
        ("FROM ./good\nPARAMETER temperature hot\n", "temperature"),
        ("FROM ./good\nPARAMETER mirostat 1\n", "mirostat"),
        ("FROM ./good\nTEMPLATE {{ .Prompt | html }}\n", "Go"),
        ('FROM ./good\nTEMPLATE """{% if %}"""\n', "template"),
        ("FROM ./good\nTEMPLATE chatnl\n", "chatml"),
        ("FROM ./good\nADAPTER ./good\n", "adapter"),
        ("FROM ./good\nREQUIRES 99.0.0\n", "99.0.0"),
        ("FROM ./good\nMESSAGE robot hi\n", "robot"),
        ('FROM ./good\nSYSTEM """never closed\n', "never closes"),
    ],
)
def test_a_wrong_modelfile(text: str, says: str, store: Path, good: Path) -> None:
    (store / "good").symlink_to(good)
    (store / "Modelfile").write_text(text)
    _refused(_run("create", "new", "-f", str(store / "Modelfile")), says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["create", "new", "-f", "missing"], "missing"),
        (["create", "../up", "-f", "Modelfile"], "../up"),
        (["create", "new", "-f", "Modelfile", "--quantize-draft", "q4"], "draft"),
        (["show", "nothing"], "nothing"),
        (["rm", "nothing"], "nothing"),
        (["cp", "nothing", "more"], "nothing"),
        (["export", "nothing", "there"], "nothing"),
        (["run", "nothing", "hello"], "nothing"),
        (["run", "kept", "hello", "-p", "temperature=x"], "temperature"),
        (["run", "kept", "hello", "-p", "temprature=1"], "temperature"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], says: str, store: Path, good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store)
    _refused(_run(*arguments), says)


def test_a_draft_of_another_tokenizer(store: Path, good: Path) -> None:
    other = write_model(store / "other", seed=2)
    document = json.loads((other / "tokenizer.json").read_text())
    vocabulary = document["model"]["vocab"]
    vocabulary["!"], vocabulary['"'] = vocabulary['"'], vocabulary["!"]
    (other / "tokenizer.json").write_text(json.dumps(document))
    (store / "Modelfile").write_text(f"FROM {good}\nDRAFT ./other\n")
    _refused(_run("create", "new", "-f", str(store / "Modelfile")), "tokenizer")


def test_shared_malformed_folders(store: Path, shared_data: Path) -> None:
    verdicts = json.loads((shared_data / "malformed" / "expected.json").read_text())["dirs"]
    for name, verdict in verdicts.items():
        (store / "Modelfile").write_text(f"FROM {shared_data / 'malformed' / 'dirs' / name}\n")
        result = _run("create", "new", "-f", str(store / "Modelfile"), "--dry-run")
        if verdict.startswith("refuse"):
            _refused(result, "")
        else:
            assert result.exit_code == 0
