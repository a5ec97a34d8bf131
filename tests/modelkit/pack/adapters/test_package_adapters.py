"""ADAPTER lines: what goes into the package, and what a package of a package has."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import modelkit
from modelkit.errors import ModelkitError
from modelkit.modelfile import Modelfile
from modelkit.pack.adapters.package_adapters import Carried
from modelkit.pack.adapters.place import place
from modelkit.pack.adapters.stored import VERSION, read_stored
from modelkit.pack.adapters.towers import without_towers
from modelkit.pack.metadata import FILE, read_metadata
from modelkit.pack.prepare import prepare
from modelkit.showing.facts import facts_of
from modelkit.showing.texts import modelfile
from modelkit.source.adapters.reading import read_adapter, read_folder
from modelkit.store.store import Store
from runtime.models import describe
from tests.support.adapter_references import AdapterReference
from tests.support.checkpoints import random_state, random_tensor, write_checkpoint
from tests.support.packaged_adapters import TENSORS, Q, create
from tests.support.parity import Reference
from tests.support.peft_folders import pair_for, peft_tensors, write_peft
from tests.support.tiny import write_tokenizer

WEIGHTS = "adapters/lora/adapter.safetensors"


@pytest.mark.parametrize("second", ["a", "empty", "nowhere"])
def test_what_is_wrong_is_said_of_its_own_line(folder: Path, second: str) -> None:
    write_peft(folder / "a", TENSORS)
    (folder / "empty").mkdir()
    with pytest.raises(ModelkitError, match="Modelfile:4:1: "):
        create(folder, f"FROM ./model\nADAPTER ./a\nSYSTEM x\nADAPTER ./{second}\n")


def test_more_adapters_in_its_folder_are_told(folder: Path) -> None:
    """PEFT saves `default` itself, and others below it; a trainer leaves checkpoints."""
    for name in ("lora", "lora/checkpoint-5", "lora/verse"):
        write_peft(folder / name, TENSORS)
    (note,) = read_adapter(folder / "lora").notes
    assert note.endswith("ADAPTER line of its own: verse")


@pytest.mark.parametrize("path", ["..", "../", "../../style/.", "../recipes/.."])
def test_a_folder_has_its_name_however_it_is_written(folder: Path, path: str) -> None:
    write_peft(folder / "style", TENSORS)
    modelfile = folder / "style" / "recipes" / "Modelfile"
    modelfile.parent.mkdir()
    modelfile.write_text(f"FROM ../../model\nADAPTER {path}\n", encoding="utf-8")
    made = modelkit.create(modelfile, name="it", home=folder)
    assert [one.name for one in made.preparation.adapters] == ["style"]


def test_adapters_keep_their_order_and_names(folder: Path) -> None:
    for name in ("z style", "a"):
        write_peft(folder / name, TENSORS, base_model_name_or_path="org/other")
    made = create(folder, "FROM ./model\nADAPTER ./z style\nADAPTER ./a\n")
    package = Store(folder).resolve("it")
    metadata = read_metadata(package.files[FILE], "it")
    assert [one.name for one in metadata.adapters] == ["z-style", "a"]
    assert all(one.sources for one in metadata.adapters)
    assert "adapters/z-style/adapter.safetensors" in package.files
    assert any("was trained on org/other" in note for note in made.notes)
    stored = read_stored(package.files, "it")
    assert (stored["a"].rank, stored["a"].modules, stored["a"].kind, stored["a"].scale) == (3, 1, "peft", 2.0)
    brought = stored["a"].load()
    np.testing.assert_array_equal(
        np.array(brought.pairs["model.layers.1.self_attn.q_proj"].down), TENSORS[f"{Q}.lora_A.weight"].T
    )


def test_a_scale_that_no_float_holds_is_refused(tmp_path: Path) -> None:
    config, weights = tmp_path / "adapter_config.json", tmp_path / "adapter.safetensors"
    config.write_text(json.dumps({"version": VERSION, "scale": 10**400}), encoding="utf-8")
    save_file({"x.lora_down": np.ones((2, 1), np.float32), "x.lora_up": np.ones((1, 2), np.float32)}, weights)
    files = {f"adapters/a/{path.name}": path for path in (config, weights)}
    with pytest.raises(ModelkitError, match="a scale is a whole number of 1,329 bits"):
        read_stored(files, "it")


@pytest.mark.parametrize("name", ["a+b", "a=2", "a b", ".a", "\x1b[31m", "a" * 65])
def test_a_name_that_no_request_could_write_is_refused(name: str, tmp_path: Path) -> None:
    """Of an exported folder, or a package that others made."""
    with pytest.raises(ModelkitError, match="is no name for an adapter"):
        read_stored({f"adapters/{name}/adapter.safetensors": tmp_path}, "it")


@pytest.mark.parametrize("fuse", [False, True])
def test_what_an_adapter_says_is_told_whether_it_is_fused_or_not(fuse: bool, folder: Path) -> None:
    write_peft(folder / "style", TENSORS, base_model_name_or_path="org/other\033[2J")
    made = create(folder, "FROM ./model\nADAPTER ./style\n", fuse_adapters=fuse)
    assert any("was trained on org/other\\x1b[2J" in note for note in made.notes)


def test_what_is_for_images_is_left_out_and_told(tmp_path: Path) -> None:
    reference = AdapterReference("qwen3_vl_towers")
    reference.write_base(tmp_path / "model")
    reference.write(tmp_path / "both")
    weights = tmp_path / "both/adapter_model.safetensors"
    patches = "base_model.model.model.visual.patch_embed.proj"
    pair = {"A": np.ones((2, 3, 2, 2, 2), np.float32), "B": np.ones((16, 2, 1, 1, 1), np.float32)}
    kernel = {f"{patches}.lora_{name}.weight": array for name, array in pair.items()}
    save_file(load_file(weights) | kernel, weights)
    made = create(tmp_path, "FROM ./model\nADAPTER ./both\n")
    assert any("adapter both: 9 of its changes are for images and sound" in note for note in made.notes)
    tensors = load_file(weights)
    seen = {name: array for name, array in tensors.items() if ".visual." in name}
    write_peft(tmp_path / "seen", seen, r=2)
    with pytest.raises(ModelkitError, match="seen changes what is for images and sound alone"):
        create(tmp_path, "FROM ./model\nADAPTER ./seen\n")


def test_what_experts_for_images_have_is_left_out_and_told(tmp_path: Path) -> None:
    """PEFT's `experts.down_proj` is that of both mixtures of ERNIE 4.5 VL."""
    record = Reference("ernie4_5_vl_moe").record
    described = describe(record["config"])
    tensors: dict[str, np.ndarray] = {}
    for name, shape in record["tensors"].items():
        if name.endswith("_moe.experts.down_proj"):
            left, right = pair_for(name, tuple(shape), 3, input_first=False)
            tensors |= peft_tensors(name, left, right)
    folder = write_peft(tmp_path / "both", tensors, target_parameters=["experts.down_proj"])
    adapter, notes = without_towers(read_adapter(folder), described, record["tensors"])
    assert adapter.pairs
    assert not any(".vision_moe." in name for name in adapter.names)
    assert any("for what no text here meets, and are left out" in note for note in notes)


@pytest.mark.parametrize(
    ("base", "head"),
    [
        ("gemma3_wrapped", "language_model.lm_head"),  # as transformers called it up to 4.51
        ("rwkv_halved", "head"),
        ("modernbert_decoder", "decoder"),
        ("t5gemma2", "lm_head.out_proj"),
        ("bart", "lm_head"),
    ],
)
def test_the_head_of_a_base_that_ties_it_is_told_by_every_name(base: str, head: str, tmp_path: Path) -> None:
    record = Reference.called(base).record
    config = {key: one for key, one in record["config"].items() if key != "eos_token_id"}
    write_tokenizer(write_checkpoint(tmp_path / "model", config, record["tensors"]), tokens=128)
    described = describe(config)
    size = described.vocab_size, described.hidden_size
    whole = {f"base_model.model.{head}.weight": random_tensor("whole", size)}
    pair = peft_tensors(f"{head}.weight", *pair_for(head, size, 3, input_first=False))
    for name, tensors in (("whole", whole), ("pair", pair)):
        write_peft(tmp_path / name, tensors)
    create(tmp_path, "FROM ./model\nADAPTER ./whole\nADAPTER ./pair\n")
    stored = read_stored(Store(tmp_path).resolve("it").files, "it")
    assert list(stored["whole"].load().whole) == ["lm_head.weight"]
    assert list(stored["pair"].load().pairs) == ["lm_head"]


def test_a_convolution_that_runs_takes_no_pair(folder: Path) -> None:
    shapes = {"lora_A": (3, 8, 4), "lora_B": (8, 3, 1)}
    conv = "base_model.model.model.layers.1.conv"
    kernel = {f"{conv}.{name}.weight": np.ones(shape, np.float32) for name, shape in shapes.items()}
    write_peft(folder / "it", {**TENSORS, **kernel})
    with pytest.raises(ModelkitError, match=r"model\.layers\.1\.conv\.weight is a convolution"):
        create(folder, "FROM ./model\nADAPTER ./it\n")


@pytest.mark.parametrize(
    ("inside", "head", "tower"),
    [
        ("model.language_model.", "", "model.vision_tower."),
        ("language_model.model.", "language_model.", "vision_tower."),
        ("model.text_model.", "", "model.connector."),
        ("language_model.", "", "visual."),
    ],
)
def test_what_was_trained_in_a_wrapper_fits_the_text_model_alone(
    folder: Path, inside: str, head: str, tower: str
) -> None:
    """Which a GGUF file of a multimodal model is."""
    record = Reference("llama").record
    table = random_state(record["tensors"], record.get("seed", 0))["model.embed_tokens.weight"] + 1
    left, right = np.ones((8, 3), np.float32), np.ones((3, 8), np.float32)
    own = {f"base_model.model.{inside}{name[23:]}": array for name, array in TENSORS.items()}
    own |= {f"base_model.model.{inside}embed_tokens.base_layer.weight": table}
    own |= {f"base_model.model.{head}lm_head.weight": table, **peft_tensors(f"{tower}x.weight", left, right)}
    write_peft(folder / "it", own)
    made = create(folder, "FROM ./model\nADAPTER ./it\n")
    assert any("adapter it: 1 of its changes are for images and sound" in note for note in made.notes)
    found = read_stored(Store(folder).resolve("it").files, "it")["it"].load()
    assert list(found.pairs) == ["model.layers.1.self_attn.q_proj"]
    assert set(found.whole) == {"lm_head.weight", "model.embed_tokens.weight"}
    np.testing.assert_array_equal(np.array(found.whole["model.embed_tokens.weight"]), table)


@pytest.mark.parametrize(
    "spell",
    [
        lambda key: key.replace(".weight", ".default.weight"),
        lambda key: key.replace("base_model.model.", "module.base_model.model._orig_mod."),
        lambda key: key.replace(".self_attn", "._fsdp_wrapped_module._checkpoint_wrapped_module.self_attn"),
    ],
    ids=["by its name", "compiled", "sharded"],
)
def test_keys_of_a_running_models_state_are_pefts(folder: Path, spell: Callable[[str], str]) -> None:
    """As DeepSpeed, FSDP and torch.compile leave them."""
    write_peft(folder / "it", {spell(name): array for name, array in TENSORS.items()})
    create(folder, "FROM ./model\nADAPTER ./it\n")
    found = read_stored(Store(folder).resolve("it").files, "it")["it"].load()
    pair = found.pairs["model.layers.1.self_attn.q_proj"]
    np.testing.assert_array_equal(np.array(pair.down), TENSORS[f"{Q}.lora_A.weight"].T)


def test_saved_modules_and_tokens_of_a_running_model_are_pefts(folder: Path) -> None:
    """Of modules_to_save the base's own lies beside where frozen parameters were not left out."""
    head, rows = random_tensor("head", (160, 64)), random_tensor("rows", (2, 64))
    stem = "base_model.model"
    named = {
        f"{stem}.lm_head.modules_to_save.default.weight": head,
        f"{stem}.lm_head.original_module.weight": random_tensor("own", (160, 64)),
        f"{stem}.model.embed_tokens.token_adapter.trainable_tokens_delta.default": rows,
    }
    write_peft(folder / "it", {**TENSORS, **named}, trainable_token_indices=[3, 5])
    create(folder, "FROM ./model\nADAPTER ./it\n")
    found = read_stored(Store(folder).resolve("it").files, "it")["it"].load()
    np.testing.assert_array_equal(np.array(found.whole["lm_head.weight"]), head)
    np.testing.assert_array_equal(np.array(found.rows["model.embed_tokens.weight"].values), rows)


def test_what_an_encoder_has_for_other_tasks_is_left_out_and_told(tmp_path: Path) -> None:
    """`dense` and `all-linear` are layers of its pooler, too."""
    reference = AdapterReference("encoders/bert_lora")
    reference.write_base(tmp_path / "model")
    reference.write(tmp_path / "plain")
    width = reference.base["config"]["hidden_size"]
    left, right = pair_for("p", (width, width), reference.record["config"]["r"], input_first=False)
    more = peft_tensors("pooler.dense.weight", left, right)
    tensors = load_file(tmp_path / "plain/adapter_model.safetensors")
    write_peft(tmp_path / "both", tensors | more, **reference.record["config"])
    write_peft(tmp_path / "other", more, **reference.record["config"])
    made = create(tmp_path, "FROM ./model\nADAPTER ./both\n")
    assert any("adapter both: 1 of its changes are for other tasks" in note for note in made.notes)
    both = read_stored(Store(tmp_path).resolve("it").files, "it")["both"].load()
    create(tmp_path, "FROM ./model\nADAPTER ./plain\n")
    plain = read_stored(Store(tmp_path).resolve("it").files, "it")["plain"].load()
    assert both.pairs.keys() == plain.pairs.keys()
    with pytest.raises(ModelkitError, match="other changes what is for other tasks alone"):
        create(tmp_path, "FROM ./model\nADAPTER ./other\n")


def test_a_bias_that_the_base_has_not_is_not_fused(folder: Path) -> None:
    write_peft(folder / "lora", {**TENSORS, f"{Q}.lora_B.bias": np.ones(64, np.float32)}, lora_bias=True)
    with pytest.raises(ModelkitError, match=r"brings .*q_proj\.bias, and the base has no bias there"):
        create(folder, "FROM ./model\nADAPTER ./lora\n", fuse_adapters=True)
    assert create(folder, "FROM ./model\nADAPTER ./lora\n").digest


def test_biases_that_peft_does_not_read_back_are_passed_over(folder: Path) -> None:
    """With `bias` "all" it saves those of `modules_to_save` three times, and loads the one."""
    record = Reference("qwen2").record
    write_checkpoint(folder / "model", record["config"], record["tensors"])
    shapes = {
        leaf: record["tensors"][f"{Q.removeprefix('base_model.model.')}.{leaf}"]
        for leaf in ("weight", "bias")
    }
    brought = {f"{Q}.{leaf}": random_tensor(leaf, tuple(shape)) for leaf, shape in shapes.items()}
    write_peft(folder / "lora", brought, bias="all", modules_to_save=["q_proj"])
    create(folder, "FROM ./model\nADAPTER ./lora\n", "alone")
    beside = {
        f"{Q}.{inner}.bias": brought[f"{Q}.bias"] + 1 for inner in ("modules_to_save", "original_module")
    }
    write_peft(folder / "lora", brought | beside, bias="all", modules_to_save=["q_proj"])
    create(folder, "FROM ./model\nADAPTER ./lora\n", "among")
    alone, among = (Store(folder).resolve(name).files[WEIGHTS] for name in ("alone", "among"))
    assert alone.read_bytes() == among.read_bytes()
    write_peft(folder / "lora", {**TENSORS, **beside}, bias="all")
    with pytest.raises(ModelkitError, match=r"modules_to_save\.bias belongs to nothing"):
        create(folder, "FROM ./model\nADAPTER ./lora\n")


def test_what_velora_has_for_training_changes_nothing(folder: Path) -> None:
    found: list[bytes] = []
    beside = {f"{Q}.lora_velora_embed": np.ones(8, np.float32)}
    for tensors, fields in ((TENSORS, {}), (TENSORS | beside, {"velora_config": {"num_groups": 8}})):
        write_peft(folder / "lora", tensors, **fields)
        create(folder, "FROM ./model\nADAPTER ./lora\n")
        found.append(Store(folder).resolve("it").files[WEIGHTS].read_bytes())
    assert found[0] == found[1]


def write_base(folder: Path, *, tied: bool) -> np.ndarray:
    """A base whose head is its embedding, or not; gives the embedding."""
    record = Reference("llama").record
    state = random_state(record["tensors"])
    own = {key: one for key, one in state.items() if not (tied and key == "lm_head.weight")}
    config = {**record["config"], "tie_word_embeddings": tied}
    (folder / "model" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(own, folder / "model" / "model.safetensors")
    return own["model.embed_tokens.weight"]


def test_a_saved_head_is_compared_with_the_embedding_to_which_it_is_tied(folder: Path) -> None:
    """PEFT saves it wherever `lm_head` is among `target_modules`. It was noted as not compared."""
    base, head = write_base(folder, tied=True), "base_model.model.lm_head.base_layer.weight"

    def made(own: np.ndarray) -> Any:
        write_peft(folder / "lora", TENSORS | {head: own})
        return create(folder, "FROM ./model\nADAPTER ./lora\n")

    assert not any("saved beside" in note for note in made(base).notes)
    assert any("differs from the base's, and counts" in note for note in made(base + 1).notes)
    found = read_stored(Store(folder).resolve("it").files, "it")["lora"].load()
    assert {name.rpartition(".")[0] for name in found.whole} == {"lm_head", "model.embed_tokens"}
    with pytest.raises(ModelkitError, match="in training, and is"):
        made(base[:-4])


@pytest.mark.parametrize("tied", [False, True])
def test_what_peft_saves_once_more_where_tokens_were_added_changes_nothing(tied: bool, folder: Path) -> None:
    """A vocabulary that differs from the base's config makes PEFT write whole embeddings, and what lies in
    the wrappers of `modules_to_save` and `trainable_token_indices`, too.
    """
    base = write_base(folder, tied=tied)
    table, head = "base_model.model.model.embed_tokens", "base_model.model.lm_head"
    saved = {f"{table}.weight": base + 1, f"{head}.weight": base - 1}
    inner = {
        f"{one}.{kind}.weight": base + 2
        for one in (table, head)
        for kind in ("modules_to_save", "original_module")
    }
    delta = random_tensor("delta", (2, base.shape[1]))
    rows = {f"{table}.token_adapter.trainable_tokens_delta": delta}
    beside = {f"{table}.token_adapter.base_layer.weight": base}
    if tied:
        beside[f"{head}.token_adapter.base_layer.weight"] = base
        beside[f"{head}.token_adapter.trainable_tokens_delta"] = delta
    fields: dict[str, Any] = {"trainable_token_indices": [5, 9]}
    for few, more, said in ((saved, inner, {}), (rows, beside, fields)):
        found: list[bytes] = []
        for tensors in (few, few | more):
            write_peft(folder / "lora", TENSORS | tensors, **said)
            create(folder, "FROM ./model\nADAPTER ./lora\n")
            found.append(Store(folder).resolve("it").files[WEIGHTS].read_bytes())
        assert found[0] == found[1]


def test_a_table_with_more_tokens_than_the_base_says_so(folder: Path) -> None:
    tokens, width = Reference("llama").record["tensors"]["model.embed_tokens.weight"]
    more = np.ones((tokens + 4, width), np.float32)
    write_peft(folder / "lora", TENSORS | {"base_model.model.model.embed_tokens.weight": more})
    with pytest.raises(
        ModelkitError, match=rf"was {tokens + 4}×{width} in training, and is {tokens}×{width}"
    ):
        create(folder, "FROM ./model\nADAPTER ./lora\n")


def test_the_same_recipe_has_the_same_digest_and_packages_hand_adapters_on(folder: Path) -> None:
    write_peft(folder / "lora", TENSORS)
    text = "FROM ./model\nADAPTER ./lora\n"
    first, again = create(folder, text), create(folder, text, "again")
    assert first.digest == again.digest
    write_peft(folder / "more", TENSORS, r=3, lora_alpha=9)
    create(folder, "FROM it\nADAPTER ./more\nSYSTEM Short.\n", "second", quantize="q4")
    store = Store(folder)
    stored = read_stored(store.resolve("second").files, "second")
    assert {name: one.scale for name, one in stored.items()} == {"lora": 2.0, "more": 3.0}
    own = store.resolve("it").files["adapters/lora/adapter.safetensors"]
    assert store.resolve("second").files["adapters/lora/adapter.safetensors"] == own
    names = [one.name for one in read_metadata(store.resolve("second").files[FILE], "second").adapters]
    assert names == ["lora", "more"]


def test_the_files_that_decide_its_numbers_are_known_wherever_they_lie(folder: Path) -> None:
    """The hub's cache may have each in a folder of its own."""
    write_peft(folder / "lora", TENSORS)
    (folder / "beside").mkdir()
    files = {name: folder / "lora" / name for name in ("adapter_config.json", "adapter_model.safetensors")}
    files["adapter_config.json"] = files["adapter_config.json"].rename(folder / "beside" / "config")
    described = describe(json.loads((folder / "model" / "config.json").read_text()))
    assert Carried("lora", place(read_folder(files, "lora"), described, {})).files == files


def test_what_a_folder_of_an_exported_package_has_beside_its_model_is_told(folder: Path) -> None:
    for name in ("law", "verse"):
        write_peft(folder / name, TENSORS)
    create(folder, f"FROM {folder / 'model'}\nADAPTER {folder / 'law'}\nADAPTER {folder / 'verse'}")
    modelkit.export("it", folder / "out", home=folder)
    made = create(folder, f"FROM {folder / 'out'}", "again")
    assert any(note.startswith("not kept: its adapters (law, verse), which come") for note in made.notes)


def test_a_modelfile_says_where_adapters_come_from_once_their_folders_are_gone(folder: Path) -> None:
    write_peft(folder / "law", TENSORS)
    create(folder, f"FROM {folder / 'model'}\nADAPTER {folder / 'law'}")
    (folder / "law").rename(folder / "gone")
    store = Store(folder)
    text = modelfile(store.resolve("it"), store)
    assert "# The adapters come with FROM.\nFROM it:latest\n" in text
    assert "# Made from adapter law: 'adapter_model.safetensors' sha256:" in text


def test_what_was_fused_before_is_still_said_of_packages_made_of_it(folder: Path) -> None:
    """Also where another adapter of that name is beside the weights."""
    write_peft(folder / "lora", TENSORS)
    create(folder, f"FROM {folder / 'model'}\nADAPTER {folder / 'lora'}", fuse_adapters=True)
    create(folder, f"FROM it\nADAPTER {folder / 'lora'}", "beside")
    create(folder, "FROM beside", "twice", fuse_adapters=True)
    store = Store(folder)
    told = {
        name: [(one["name"], one["fused"]) for one in facts_of(store, store.resolve(name))["adapters"]]
        for name in ("beside", "twice")
    }
    assert told == {"beside": [("lora", True), ("lora", False)], "twice": [("lora", True)] * 2}


def test_a_plan_names_adapters_and_writes_nothing(folder: Path) -> None:
    write_peft(folder / "lora", TENSORS)
    recipe = Modelfile.parse("FROM ./model\nADAPTER ./lora\n", file=str(folder / "Modelfile")).recipe(folder)
    store = Store(folder / "home")
    prepared = prepare(recipe, store)
    (row,) = prepared.to_json()["adapters"]
    assert {key: row[key] for key in ("name", "kind", "rank", "modules")} == {
        "name": "lora",
        "kind": "peft",
        "rank": 3,
        "modules": 1,
    }
    assert not list((folder / "home").rglob("*.safetensors"))
