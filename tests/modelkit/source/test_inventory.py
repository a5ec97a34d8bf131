import json
from pathlib import Path
from typing import Any

import pytest

from modelkit.errors import MalformedFile, SourceError, UnsupportedSource
from modelkit.source.inventory import read_inventory
from modelkit.source.tree import read_directory
from tests.modelkit.source.files import WEIGHTS, Specs, safetensors, take_stock, write_source

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def write_sharded(folder: Path, shards: dict[str, Specs], weight_map: dict[str, Any] | None = None) -> Path:
    """A source with these shards and an index of `weight_map` (by default the true one; {}: no index)."""
    write_source(folder)
    (folder / "model.safetensors").unlink()
    for name, tensors in shards.items():
        (folder / name).write_bytes(safetensors(tensors))
    if weight_map is None:
        weight_map = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    if weight_map:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


TWO: dict[str, Specs] = {FIRST: {"a": ("F32", (2,)), "b": ("F32", (2,))}, SECOND: {"c": ("BF16", (3,))}}


def test_a_single_file_source_is_read(tmp_path: Path) -> None:
    inventory = take_stock(write_source(tmp_path, hidden_size=4))
    assert inventory.config["hidden_size"] == 4
    assert list(inventory.tensors) == sorted(WEIGHTS)
    assert list(inventory.files) == ["config.json", "tokenizer.json"]
    assert [(file.name, file.nbytes) for file in inventory.weights] == [
        ("model.safetensors", (tmp_path / "model.safetensors").stat().st_size)
    ]
    assert inventory.notes == ()


@pytest.mark.parametrize("weight_map", [None, {}], ids=["with index", "without index"])
def test_a_sharded_source_is_read(tmp_path: Path, weight_map: dict[str, Any] | None) -> None:
    inventory = take_stock(write_sharded(tmp_path, TWO, weight_map))
    assert list(inventory.tensors) == ["a", "b", "c"]
    assert [file.name for file in inventory.weights] == [FIRST, SECOND]
    assert inventory.tensors["c"].path == tmp_path / SECOND


def test_blobs_under_other_names_are_read_the_same(tmp_path: Path) -> None:
    folder = write_source(tmp_path / "a")
    blobs = {name: tmp_path / f"blob{i}" for i, name in enumerate(read_directory(folder))}
    for name, blob in blobs.items():
        blob.write_bytes((folder / name).read_bytes())
    inventory = read_inventory(
        {**blobs, "draft/model.safetensors": tmp_path / "not looked at"}, "stored:latest"
    )
    assert [file.path for file in inventory.weights] == [blobs["model.safetensors"]]
    assert inventory.notes == ()


def test_shared_sources_are_read(shared_data: Path) -> None:
    for folder in sorted((shared_data / "tiny").iterdir()):
        inventory = take_stock(folder)
        shapes = json.loads((folder / "meta.json").read_text())["weights"]
        assert {name: list(tensor.shape) for name, tensor in inventory.tensors.items()} == shapes


@pytest.mark.parametrize(
    ("index", "error", "said"),
    [
        (
            {"weight_map": {"a": "../outside.safetensors"}},
            MalformedFile,
            "'../outside.safetensors'; the bare name",
        ),
        ({"weight_map": {"a": "/etc/passwd"}}, MalformedFile, "bare name"),
        ({"weight_map": {"a": "sub/model.safetensors"}}, MalformedFile, "bare name"),
        ({"weight_map": {"a": "C:\\x.safetensors"}}, MalformedFile, "bare name"),
        ({"weight_map": {"a": "config.json"}}, MalformedFile, "bare name"),
        ({"weight_map": {"a": 1}}, MalformedFile, "bare name"),
        ({"weight_map": {}}, MalformedFile, "no `weight_map`"),
        ({"weight_map": []}, MalformedFile, "no `weight_map`"),
        ({}, MalformedFile, "no `weight_map`"),
        ({"weight_map": {f"t{i}": f"m{i}.safetensors" for i in range(9)}}, SourceError, "`m0.safetensors`"),
    ],
)
def test_a_bad_index_is_refused(tmp_path: Path, index: Any, error: type[SourceError], said: str) -> None:
    write_source(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(error) as caught:
        take_stock(tmp_path)
    assert said in caught.value.message


TRUE = {"a": FIRST, "b": FIRST, "c": SECOND}


@pytest.mark.parametrize(
    ("weight_map", "said"),
    [
        (
            {**TRUE, "d": "model-00003-of-00003.safetensors"},
            "`model-00003-of-00003.safetensors`, which is not there",
        ),
        ({**TRUE, "d": SECOND}, f"places `d` in {SECOND}, which does not hold it"),
        ({**TRUE, "a": SECOND}, f"places `a` in {SECOND}; it is in {FIRST}"),
        (
            {"a": FIRST, "c": SECOND},
            f"{FIRST} holds the tensor `b`, which model.safetensors.index.json does not",
        ),
        ({"a": FIRST, "b": FIRST}, f"`{SECOND}`, which model.safetensors.index.json does not name"),
    ],
    ids=["missing shard", "absent tensor", "wrong shard", "surplus tensor", "surplus shard"],
)
def test_an_index_that_disagrees_with_its_shards_is_refused(
    tmp_path: Path, weight_map: dict[str, str], said: str
) -> None:
    with pytest.raises(SourceError) as caught:
        take_stock(write_sharded(tmp_path, TWO, weight_map))
    assert said in caught.value.message


def test_an_index_that_was_left_beside_joined_shards_may_be_removed(tmp_path: Path) -> None:
    folder = write_source(tmp_path)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": TRUE}))
    with pytest.raises(SourceError, match=f"names `{FIRST}`") as caught:
        take_stock(folder)
    assert "Or remove the index, if model.safetensors is the model" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([FIRST], f"lacks `{SECOND}`"),
        ([SECOND], f"lacks `{FIRST}`"),
        (["model-1-of-999999.safetensors"], "lacks `model-000002-of-999999.safetensors`"),
        ([FIRST, SECOND, "model-00003-of-00002.safetensors"], "3 shards that say they are 2"),
        ([FIRST, "model-00002-of-00003.safetensors"], "several sets"),
        (["model.safetensors", "model.fp16.safetensors"], "more than one way"),
        (["model.safetensors", FIRST, SECOND], "more than one way"),
        ([FIRST, SECOND, "model-extra.safetensors"], "more than one way"),
    ],
)
def test_without_an_index_the_set_must_be_whole_and_single(
    tmp_path: Path, names: list[str], said: str
) -> None:
    shards: dict[str, Specs] = {name: {f"t{i}": ("F32", (1,))} for i, name in enumerate(names)}
    with pytest.raises(SourceError) as caught:
        take_stock(write_sharded(tmp_path, shards, {}))
    assert said in caught.value.message


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    shards: dict[str, Specs] = {FIRST: {"a": ("F32", (1,))}, SECOND: {"a": ("F32", (1,))}}
    with pytest.raises(SourceError, match=f"`a` is in both {FIRST} and {SECOND}"):
        take_stock(write_sharded(tmp_path, shards, {}))


def test_weights_without_tensors_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no tensor"):
        take_stock(write_source(tmp_path, {}))


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("pytorch_model.bin", UnsupportedSource, "Python pickles"),
        ("ggml-model-f16.bin", UnsupportedSource, "weights as GGML only"),
        ("story.ggmlv3.q4_0.bin", UnsupportedSource, "weights as GGML only"),
        ("consolidated.00.pth", UnsupportedSource, "Python pickles"),
        ("model.gguf", UnsupportedSource, "GGUF"),
        ("model.h5", UnsupportedSource, "Keras"),
        ("model.onnx", UnsupportedSource, "ONNX"),
        ("__0_0.distcp", UnsupportedSource, "PyTorch's distributed checkpoints"),
        ("model.litertlm", UnsupportedSource, "LiteRT"),
        ("model.mlmodel", UnsupportedSource, "Core ML"),
        ("saved_model.pb", UnsupportedSource, "TensorFlow"),
        ("flax_model.msgpack", UnsupportedSource, "Flax"),
        ("consolidated.safetensors", UnsupportedSource, "Mistral"),
        ("adapter_model.safetensors", UnsupportedSource, "LoRA"),
        ("llama.safetensors", UnsupportedSource, "only `llama.safetensors`"),
        ("README.md", SourceError, "no model weights"),
    ],
)
def test_without_safetensors_weights_the_source_is_called_what_it_is(
    tmp_path: Path, name: str, error: type[SourceError], said: str
) -> None:
    write_source(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(error) as caught:
        take_stock(tmp_path)
    assert said in caught.value.message


def test_every_file_that_stays_behind_is_noted(tmp_path: Path) -> None:
    write_source(tmp_path)
    for name in (
        "pytorch_model.bin",
        "a.bin",
        "consolidated.safetensors",
        "modeling.py",
        ".gitattributes",
        "x\n",
    ):
        (tmp_path / name).write_bytes(b"never read")
    assert take_stock(tmp_path).notes == (
        "not kept: .gitattributes (hidden)",
        "not kept: a.bin, pytorch_model.bin (Python pickles, never read)",
        "not kept: consolidated.safetensors (the same weights in another layout)",
        "not kept: modeling.py (code is never run)",
        r"not kept: x\n (not a safe file name)",
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("readme.md", "the name of another but for capitals"),
        ("README:zh.md", "not a safe file name"),
        ("LICENSE.", "not a safe file name"),
        ("NOTICE-e\u0301.txt", "not a safe file name"),
    ],
)
def test_a_document_of_a_name_that_no_package_can_have_stays_behind(
    name: str, reason: str, tmp_path: Path
) -> None:
    write_source(tmp_path)
    for one in ("README.md", name):
        (tmp_path / one).write_text("text")
    found = take_stock(tmp_path)
    assert found.notes == (f"not kept: {name} ({reason})",)
    assert "README.md" in found.files
    assert name not in found.files
    assert name not in found.seen


def test_what_belongs_to_a_model_is_kept(tmp_path: Path) -> None:
    write_source(tmp_path)
    kept = [
        "LICENSE",
        "License.txt",
        "NOTICE",
        "README.md",
        "chat_template.jinja",
        "merges.txt",
        "tokenizer.model",
        "qwen.tiktoken",
        "tokenizer.jsonl",
    ]
    for name in kept:
        (tmp_path / name).write_text("text")
    for name in ("generation_config.json", "preprocessor_config.json", "tokenizer_config.json", "vocab.json"):
        (tmp_path / name).write_text("{}")
        kept.append(name)
    assert sorted(take_stock(tmp_path).files) == sorted([*kept, "config.json", "tokenizer.json"])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git-LFS pointer"),
        ("tokenizer.model", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git-LFS pointer"),
        ("tokenizer.json", "<html>", "web page"),
        ("tokenizer_config.json", "Entry not found", "is not JSON"),
        ("tokenizer_config.json", "\ufeff{}", "it begins with a byte order mark; save it"),
        ("config.json", "{", "not valid JSON"),
        ("generation_config.json", "[]", "an object was expected"),
    ],
)
def test_a_kept_file_that_is_not_itself_is_refused(
    tmp_path: Path, name: str, content: str, said: str
) -> None:
    write_source(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(MalformedFile) as caught:
        take_stock(tmp_path)
    assert f"source/{name}" in caught.value.message
    assert said in caught.value.message


def test_a_config_that_names_a_python_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedSource, match=r"'evil.py'"):
        take_stock(write_source(tmp_path, model_file="evil.py"))


def test_an_auto_map_is_noted_and_not_followed(tmp_path: Path) -> None:
    inventory = take_stock(write_source(tmp_path, auto_map={"AutoModel": "modeling.X"}))
    assert inventory.notes == ("config.json names code to run (`auto_map`); it is not followed",)


def test_a_source_without_config_is_refused(tmp_path: Path) -> None:
    write_source(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(SourceError, match=r"no config.json"):
        take_stock(tmp_path)


@pytest.mark.parametrize("name", ["index_escape", "index_missing_shard", "only_pickle"])
def test_shared_malformed_folders_are_refused(shared_data: Path, name: str) -> None:
    with pytest.raises(SourceError):
        take_stock(shared_data / "malformed" / "dirs" / name)
