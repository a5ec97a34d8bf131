"""`modelkit show`: sections, single texts, JSON, and a Modelfile that makes the package again."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from modelkit.showing.facts import (
    _kinds,  # pyright: ignore[reportPrivateUsage] -- layouts that no tiny model has
    facts_of,
)
from modelkit.store import Package, Store, build_artifact
from modelkit.tokenizer.infill import ROWS
from runtime.cache.layout import Encoder, Full, Recurrent, State, Stateless
from tests.support.checkpoints import write_checkpoint
from tests.support.heads import HeadReference
from tests.support.tiny import write_model, write_tokenizer

Run = Callable[..., Result]
Create = Callable[..., None]

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
LINES = (
    f"TEMPLATE {TEMPLATE}",
    'SYSTEM """Be brief.\n\nAnd kind.\nAlways."""',
    "PARAMETER temperature 0.25",
    'PARAMETER stop "\n\n"',
    "PARAMETER stop END",
    "PARAMETER num_ctx 100",
    "LICENSE MIT",
    'LICENSE """Second "licence".\n"""',
    "MESSAGE user Hello",
    'MESSAGE assistant """Hi,\nthere."""',
    "REQUIRES v0.1",
    "PARSER qwen3",
)


@pytest.fixture
def facts(modelkit: Run) -> Callable[[str], dict[str, object]]:
    return lambda name: json.loads(modelkit("show", name, "--json").stdout)


def test_sections(modelkit: Run, created: Create, draft_line: str) -> None:
    created("story", draft_line, *LINES)
    shown = modelkit("show", "story").stdout
    titles = [line.strip() for line in shown.splitlines() if line.startswith("  ") and line[2] != " "]
    assert titles == [
        "Model",
        "Draft",
        "Memory (float32, sequences of 100 tokens)",
        "Capabilities",
        "Parameters",
        "System",
        "Messages",
        "License",
    ]


def test_memory_per_kind_of_layer(created: Create, facts: Callable[[str], dict], draft_line: str) -> None:
    created("story", draft_line)
    shown = facts("story")
    per_layer = 2 * 1 * 32 * 4  # keys and values, heads, width, bytes of a float32
    assert shown["memory"]["kinds"] == [
        {
            "kind": "full",
            "layers": 2,
            "format": "f32",
            "bytes_per_token": per_layer,
            "bytes_per_sequence": 256 * per_layer,
        }
    ]
    assert shown["memory"]["bytes_per_sequence"] == 2 * shown["draft"]["memory"]["bytes_per_sequence"]


def _with_draft_file(home: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Change a file of the draft of `story`."""
    store = Store(home)
    tree = {path: file.read_bytes() for path, file in store.resolve("story").files.items()}
    tree[f"draft/{name}"] = change(tree[f"draft/{name}"])
    with store.begin() as new:
        new.commit("story", build_artifact({path: new.add_bytes(data) for path, data in tree.items()}))


def test_a_broken_draft_hides_nothing_of_its_target(
    modelkit: Run, created: Create, facts: Callable[[str], dict], draft_line: str, home: Path
) -> None:
    created("story", draft_line)
    _with_draft_file(home, "model.safetensors", lambda data: data[:-9])
    shown = facts("story")
    assert shown["problem"] is None
    assert shown["memory"]["kinds"]
    assert "story/draft/model.safetensors is cut off" in shown["draft"]["problem"]
    assert "the draft: story/draft/model.safetensors is cut off" in modelkit("show", "story").stderr


def test_a_draft_that_does_not_fit_its_target_is_shown_with_its_problem(
    created: Create, facts: Callable[[str], dict], draft_line: str, home: Path
) -> None:
    created("story", draft_line)
    assert facts("story")["draft"]["problem"] is None
    _with_draft_file(home, "config.json", lambda data: data.replace(b"LlamaForCausalLM", b"LlamaModel"))
    assert "makes embeddings" in facts("story")["draft"]["problem"]


def test_memory_follows_the_format_of_keys_and_values(
    modelkit: Run, created: Create, facts: Callable[[str], dict]
) -> None:
    created("story", "PARAMETER kv_format q8")
    (kind,) = facts("story")["memory"]["kinds"]
    # 32 elements of a byte, and a scale and a bias in f32, for keys and values of the one head.
    assert (kind["format"], kind["bytes_per_token"]) == ("q8", 2 * (32 + 8))
    assert "full  2 layers  q8  160 B per token" in modelkit("show", "story").stdout


def test_folds_keep_their_own_float_types() -> None:
    conv, state = State((3, 4)), State((8, 8), "float32")
    layout = [Full(2, 64), Recurrent({"conv": conv, "state": state}), Encoder(2, 8), Stateless()]
    kept = [kind["format"] for kind in _kinds(layout, 100, "bfloat16", "q4")]
    assert kept == ["q4", "bf16, f32", "bf16", None]


def test_a_package_that_goes_meanwhile_is_shown(
    modelkit: Run, created: Create, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    created("story")

    def facts_behind(store: Store, package: Package, *, tensors: bool) -> dict[str, Any]:
        Store(home).remove("story")
        return facts_of(store, package, tensors=tensors)

    monkeypatch.setattr("modelkit.showing.facts.facts_of", facts_behind)
    assert "Memory" in modelkit("show", "story").stdout
    assert Store(home).digests() == {}


@pytest.fixture
def with_head(modelkit: Run, tmp_path: Path) -> None:
    """A package `headed` whose weights hold a draft head, and a tower for images."""
    record = HeadReference("qwen3_5").record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    tensors = {**record["tensors"], "model.visual.patch.weight": (64, 64)}
    write_tokenizer(write_checkpoint(tmp_path / "headed", config, tensors), tokens=128)
    (tmp_path / "Modelfile").write_text("FROM ./headed\n")
    assert modelkit("create", "headed", "-f", str(tmp_path / "Modelfile")).exit_code == 0


@pytest.mark.usefixtures("with_head")
def test_a_draft_head_in_the_models_own_file_is_shown(modelkit: Run, facts: Callable[[str], dict]) -> None:
    head = facts("headed")["head"]
    tensors = HeadReference("qwen3_5").record["tensors"]
    elements = sum(math.prod(shape) for name, shape in tensors.items() if name.startswith("mtp."))
    assert head == {"layers": 1, "size_bytes": 4 * elements}
    (line,) = [line for line in modelkit("show", "headed").stdout.splitlines() if "draft head" in line]
    assert line.split(maxsplit=2)[2] == f"1 layer, {4 * elements / 1000:.0f} kB"


@pytest.mark.usefixtures("with_head")
def test_what_is_stored_and_never_run_is_shown(modelkit: Run, facts: Callable[[str], dict]) -> None:
    (sentence,) = facts("headed")["unused"]
    assert sentence.startswith(
        "what is for images and sound is stored and not run (model.visual.patch.weight)"
    )
    assert modelkit("show", "headed").stderr == f"note: {sentence}\n"


def test_a_model_without_a_head_says_nothing_of_one(created: Create, facts: Callable[[str], dict]) -> None:
    created("story")
    assert (facts("story")["head"], facts("story")["unused"]) == (None, [])


def test_a_format_that_cannot_hold_the_heads_is_said(
    modelkit: Run, tmp_path: Path, facts: Callable[[str], dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a package that was made elsewhere: `create` refuses to."""
    write_model(tmp_path / "odd", head_dim=24)
    (tmp_path / "Modelfile").write_text("FROM ./odd\nPARAMETER kv_format q8\n")
    line = ("create", "odd", "-f", str(tmp_path / "Modelfile"))
    assert "kv_format q8 does not suit" in modelkit(*line).stderr
    monkeypatch.setattr("modelkit.pack.model_setup.misfits", lambda *_: [])
    assert modelkit(*line).exit_code == 0
    assert "kv_format q8 does not suit it: layer 0 (full)" in str(facts("odd")["problem"])


def test_long_texts_are_shown_by_their_beginning(modelkit: Run, created: Create) -> None:
    created("story", *LINES)
    shown = modelkit("show", "story").stdout
    assert "  System\n    Be brief.\n    And kind.\n    ...\n" in shown


def test_json_has_layers_draft_and_config(
    created: Create, facts: Callable[[str], dict], draft_line: str
) -> None:
    created("story", draft_line, *LINES)
    shown = facts("story")
    paths = [layer["path"] for layer in shown["layers"]]
    assert {"model.safetensors", "draft/model.safetensors", "config.json", "LICENSE-2"} <= set(paths)
    assert shown["draft"]["architecture"] == "LlamaForCausalLM"
    assert (shown["context_length"], shown["embedding_length"], shown["parameter_count"]) == (256, 64, 94528)
    assert shown["parameters"] == {"num_ctx": 100, "stop": ["\n\n", "END"], "temperature": 0.25}
    assert shown["system"] == "Be brief.\n\nAnd kind.\nAlways."
    assert shown["messages"][1] == {"role": "assistant", "content": "Hi,\nthere."}
    assert shown["template"] == TEMPLATE
    assert shown["capabilities"] == ["completion", "chat"]
    assert shown["style"] == {"name": "qwen3", "found": "parser"}
    assert shown["thinking"]["said"] == "no"


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--system", "Be brief.\n\nAnd kind.\nAlways."),
        ("--template", TEMPLATE),
        ("--parameters", 'temperature 0.25\nstop "\\n\\n"\nstop "END"\nnum_ctx 100\n'),
        ("--license", 'MIT\nSecond "licence".\n'),
    ],
)
def test_a_text_alone(flag: str, text: str, modelkit: Run, created: Create) -> None:
    created("story", *LINES)
    assert modelkit("show", "story", flag).stdout == text


def test_a_long_license_is_shown(
    modelkit: Run, facts: Callable[[str], dict], checkpoints: Path, tmp_path: Path
) -> None:
    """One above 1 MiB was kept, and `show --license` said that there was none."""
    text = "A very long licence.\n" * 60_000
    shutil.copytree(checkpoints / "target", tmp_path / "model")
    (tmp_path / "model" / "LICENSE").write_text(text)
    (tmp_path / "Modelfile").write_text("FROM ./model\n")
    assert modelkit("create", "story", "-f", str(tmp_path / "Modelfile")).exit_code == 0
    assert modelkit("show", "story", "--license").stdout == text
    shown = facts("story")["licenses"]["LICENSE"]
    assert len(shown) < 1_100_000
    assert shown.endswith(f"\n[{len(text) - (1 << 20):,} bytes more stand in the package's file LICENSE]\n")
    assert "A very long licence." in modelkit("show", "story").stdout
    assert modelkit("show", "story", "--modelfile").stdout == f"FROM {tmp_path / 'model'}\n"


def test_the_modelfile_makes_the_same_package(
    modelkit: Run, created: Create, facts: Callable[[str], dict], tmp_path: Path, draft_line: str
) -> None:
    licences = ('LICENSE """Not all can be read: \ufffd."""', f'LICENSE """{"A long one. " * 9000}"""')
    created("story", draft_line, *LINES, *licences)
    (tmp_path / "again").write_text(modelkit("show", "story", "--modelfile").stdout)
    assert modelkit("create", "second", "-f", str(tmp_path / "again")).exit_code == 0
    assert facts("second")["digest"] == facts("story")["digest"]


def test_the_modelfile_says_what_the_package_holds(modelkit: Run, created: Create, checkpoints: Path) -> None:
    created("story", "SYSTEM Be brief.", "PARAMETER top_k 7")
    assert (
        modelkit("show", "story", "--modelfile").stdout
        == f"FROM {checkpoints / 'target'}\nSYSTEM Be brief.\nPARAMETER top_k 7\n"
    )


def test_an_absent_text_is_a_note(modelkit: Run, created: Create) -> None:
    created("story")
    result = modelkit("show", "story", "--system")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "note: story has no system\n")


@pytest.mark.parametrize("flags", [("--system", "--license"), ("--system", "--json"), ("--system", "-v")])
def test_one_thing_at_a_time(flags: tuple[str, str], modelkit: Run, created: Create) -> None:
    created("story")
    result = modelkit("show", "story", *flags)
    assert result.exit_code == 2
    assert "give one of --modelfile, --parameters" in result.stderr


def test_verbose_lists_every_tensor(modelkit: Run, created: Create, draft_line: str) -> None:
    created("story", draft_line)
    shown = modelkit("show", "story", "-v").stdout
    assert shown.count("embed_tokens.weight") == 2
    assert "f32  320 x 64  81.9 kB" in shown


def test_verbose_json_lists_every_tensor(modelkit: Run, created: Create) -> None:
    created("story")
    tensors = json.loads(modelkit("show", "story", "-v", "--json").stdout)["tensors"]
    assert len(tensors) == 20
    assert tensors[0] == {
        "name": "model.embed_tokens.weight",
        "dtype": "f32",
        "shape": [320, 64],
        "format": "f32",
        "size_bytes": 81920,
    }


def test_an_unknown_name(modelkit: Run, created: Create) -> None:
    created("story")
    result = modelkit("show", "stori")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Did you mean story" in result.stderr
    of_a_file = modelkit("show", "m.gguf").stderr  # what is near to `m.gguf:latest` is `story:latest`
    assert ("Did you mean" in of_a_file, "FROM and the path" in of_a_file) == (False, True)


def put(home: Path, files: dict[str, bytes]) -> None:
    """A package made by another tool, under the name `other`."""
    store = Store(home)
    with store.begin() as new:
        new.commit("other", build_artifact({path: new.add_bytes(data) for path, data in files.items()}))


def test_a_package_of_an_unknown_architecture_is_shown_as_far_as_it_goes(
    modelkit: Run, home: Path, checkpoints: Path
) -> None:
    config = json.dumps({"architectures": ["StrangeForCausalLM"], "vocab_size": 320}).encode()
    weights = (checkpoints / "target" / "model.safetensors").read_bytes()
    put(home, {"config.json": config, "model.safetensors": weights})
    result = modelkit("show", "other")
    assert result.exit_code == 0
    assert "architecture  StrangeForCausalLM" in result.stdout
    assert "note: the architecture 'StrangeForCausalLM' is not supported" in result.stderr


def test_a_package_without_a_model_says_so(modelkit: Run, home: Path) -> None:
    put(home, {"README.md": b"nothing here", "draft/config.json": b"{}"})
    result = modelkit("show", "other")
    assert result.exit_code == 0
    assert "digest" in result.stdout
    assert "note: " in result.stderr
    assert json.loads(modelkit("show", "other", "--json").stdout)["problem"]


CALLS = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "{% endfor %}"
    "{% if add_generation_prompt and enable_thinking is false %}<think></think>{% endif %}"
)


def test_tools_and_thinking_are_said(modelkit: Run, tmp_path: Path, facts: Callable[[str], dict]) -> None:
    write_model(tmp_path / "able", template=CALLS)
    config = {"eos_token": "<end>", "additional_special_tokens": [*ROWS[0].written]}
    (tmp_path / "able" / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "Modelfile").write_text("FROM ./able\n")
    modelkit("create", "able", "-f", str(tmp_path / "Modelfile"))
    shown = facts("able")
    assert shown["capabilities"] == ["completion", "chat", "tools", "thinking", "insert"]
    assert shown["style"] == {"name": "qwen3", "found": "template"}
    assert (shown["thinking"]["variable"], shown["thinking"]["can_be_off"]) == ("enable_thinking", True)
    lines = [" ".join(line.split()) for line in modelkit("show", "able").stdout.splitlines()]
    assert "tools qwen3" in lines
    assert "thinking on, can be switched off" in lines


@pytest.mark.parametrize("broken", ["{% for %}", "Hello"])
def test_a_template_that_does_not_work_is_no_capability(
    modelkit: Run, tmp_path: Path, facts: Callable[[str], dict], broken: str
) -> None:
    write_model(tmp_path / "odd", template=broken)
    (tmp_path / "Modelfile").write_text("FROM ./odd\n")
    made = modelkit("create", "odd", "-f", str(tmp_path / "Modelfile"))
    assert (made.exit_code, "chat template does not work" in made.stderr) == (0, True)
    assert facts("odd")["capabilities"] == ["completion"]
    assert "no chat, plain prompts only: " in modelkit("show", "odd").stderr
    assert modelkit("run", "odd", "--raw", "A", "-p", "num_predict=1").exit_code == 0
