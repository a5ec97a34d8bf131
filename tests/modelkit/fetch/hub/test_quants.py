"""Which files of a repository a quant means."""

import pytest

from modelkit.address import HubAddress
from modelkit.errors import FetchError, UnsupportedSource
from modelkit.fetch.hub.choose import Choice, choose_adapter, choose_model
from modelkit.fetch.hub.listing import Listed, Listing
from modelkit.fetch.hub.quants import quant_of
from tests.support.effort import at_most

SHARDS = [f"UD-Q8_K_XL/Story-UD-Q8_K_XL-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
GGUF = [
    *(
        "story-Q4_K_M.gguf",
        "story-q8_0.gguf",
        "story.IQ4_XS.gguf",
        "story-BF16.gguf",
        "story-MXFP4_MOE.gguf",
        "story-F16.gguf",
    ),
    *("story-UD-Q2_K_XL.gguf", "mmproj-story-F16.gguf", "story-imatrix.gguf", "README.md", "config.json"),
    *SHARDS,
]
FILES: dict[str, list[str]] = {
    "gguf": GGUF,
    "both": [*GGUF, "model.safetensors"],
    "one": ["anything.gguf", "mmproj.gguf"],
    "no default": ["story-Q5_K_M.gguf", "story-Q6_K.gguf"],
    "two of one": ["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"],
    "a gap": ["s-Q4_K_M-00001-of-00003.gguf", "s-Q4_K_M-00003-of-00003.gguf"],
    "a gap beside": ["s-Q8_0.gguf", "s-Q5_0-00001-of-00002.gguf"],
    "from zero": ["s-Q8_0-00000-of-00002.gguf", "s-Q8_0-00001-of-00002.gguf"],
    "drafts": [f"{kind}s-Q4_K_M.gguf" for kind in ("", "mtp-", "dflash-", "eagle3-")]
    + ["s-lora-Q4_K_M.gguf"],
    "a merged adapter": ["s-lora-Q4_K_M.gguf", "s-MTP-lora-Q8_0.gguf"],
    "in capitals": ["S-Q4_K_M.GGUF", "MMPROJ-F16.GGUF"],
    "shards in capitals": ["S-Q8_0-00001-OF-00002.GGUF", "S-Q8_0-00002-OF-00002.GGUF"],
    "folders": ["Q4_0/s.gguf", "q8_0/s-00001-of-00001.gguf", "v2/s.gguf"],
    "projectors": ["mmproj-F16.gguf", "imatrix.gguf"],
    "pickles": ["pytorch_model.bin"],
    "an adapter": ["adapter_config.json", "adapter_model.safetensors"],
    "nothing": ["README.md"],
    "modules": [
        *("model.safetensors", "modules.json", "1_Pooling/config.json", "2_Dense/config.json"),
        *("2_Dense/model.safetensors", "2_Dense/pytorch_model.bin", "onnx/model.safetensors"),
    ],
    "no file name": ["model.safetensors", "README: old.md"],
    "capitals": ["story-Q4_K_M.gguf", "LICENSE", "license"],
}


def chosen(files: str, quant: str | None = None, file: str | None = None) -> Choice:
    listed = {name: Listed(name, 1, "0" * 64, None) for name in FILES[files]}
    weights = [name for name in listed if name == "model.safetensors"]
    return choose_model(
        Listing("amy/story", "a" * 40, listed), HubAddress("amy/story", quant, None, file), lambda: weights
    )


@pytest.mark.parametrize(
    ("files", "quant", "weights"),
    [
        ("gguf", None, ["story-Q4_K_M.gguf"]),
        ("gguf", "q4_k_m", ["story-Q4_K_M.gguf"]),
        ("gguf", "Q8_0", ["story-q8_0.gguf"]),
        ("gguf", "iq4_xs", ["story.IQ4_XS.gguf"]),
        ("gguf", "bf16", ["story-BF16.gguf"]),
        ("gguf", "MXFP4_MOE", ["story-MXFP4_MOE.gguf"]),
        ("gguf", "UD-Q8_K_XL", SHARDS),
        ("gguf", "Q2_K_XL", ["story-UD-Q2_K_XL.gguf"]),
        ("both", None, ["model.safetensors"]),
        ("both", "Q8_0", ["story-q8_0.gguf"]),
        ("one", None, ["anything.gguf"]),
        ("gguf", "FP16", ["story-F16.gguf"]),
        ("a gap beside", None, ["s-Q8_0.gguf"]),
        ("drafts", None, ["s-Q4_K_M.gguf"]),
        ("a merged adapter", "q8_0", ["s-MTP-lora-Q8_0.gguf"]),
        ("in capitals", None, ["S-Q4_K_M.GGUF"]),
        ("shards in capitals", None, FILES["shards in capitals"]),
        ("folders", None, ["q8_0/s-00001-of-00001.gguf"]),
        ("folders", "Q4_0", ["Q4_0/s.gguf"]),
    ],
)
def test_a_quant_means_one_model(files: str, quant: str | None, weights: list[str]) -> None:
    assert list(chosen(files, quant).weights) == weights


def test_a_draft_beside_a_model_is_named_by_its_file() -> None:
    assert list(chosen("drafts", file="mtp-s-Q4_K_M.gguf").weights) == ["mtp-s-Q4_K_M.gguf"]


def test_modules_behind_a_model_come_with_it() -> None:
    found = chosen("modules")
    assert list(found.weights) == ["model.safetensors"]
    assert {file.name for file in found.files} == set(FILES["modules"][:5])


def test_shards_come_together_and_without_the_folder_they_are_in() -> None:
    found = chosen("gguf", file=SHARDS[0])
    assert list(found.weights) == SHARDS
    assert "README.md" in {file.name for file in found.files}
    assert "config.json" not in {file.name for file in found.files}  # what it says is in the file


@pytest.mark.parametrize(
    ("files", "quant", "said"),
    [
        ("gguf", "Q3_K_S", r"no Q3_K_S\nThere are .*Q4_K_M.*hf\.co/amy/story:"),
        ("gguf", "F32", "no F32"),
        ("no default", None, r"2 models to choose from\nThere are Q5_K_M, Q6_K"),
        (
            "two of one",
            "Q4_K_M",
            r"2 files of Q4_K_M\nThere are a-Q4_K_M\.gguf, .*hf\.co/amy/story/a-Q4_K_M\.gguf",
        ),
        ("a gap", None, "2 of 3 shards; number 2"),
        ("a gap beside", "Q5_0", "1 of 2 shards; number 2"),
        ("from zero", None, "a shard of the number 0"),
        ("nothing", None, r"no model\*\.safetensors and no \.gguf"),
    ],
)
def test_what_cannot_be_chosen_is_said(files: str, quant: str | None, said: str) -> None:
    with pytest.raises(FetchError, match=said):
        chosen(files, quant)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["model-a.safetensors", "model-A.safetensors"], "two files called `model-a.safetensors`"),
        (["model: 1.safetensors"], r"hf\.co/amy/story: .*'model: 1.*' is not one that a package can have"),
    ],
)
def test_weights_of_names_that_no_package_can_have_are_refused(names: list[str], said: str) -> None:
    listed = {name: Listed(name, 1, "0" * 64, None) for name in names}
    with pytest.raises(FetchError, match=said):
        choose_model(Listing("amy/story", "a" * 40, listed), HubAddress("amy/story"), lambda: names)


@pytest.mark.parametrize(
    ("files", "kept"),
    [
        ("capitals", ["LICENSE", "story-Q4_K_M.gguf"]),
        ("no file name", ["model.safetensors"]),
    ],
)
def test_documents_of_names_that_no_package_can_have_are_left(files: str, kept: list[str]) -> None:
    assert sorted(file.name for file in chosen(files).files) == kept


def test_many_files_take_no_more_than_a_moment() -> None:
    names = ["model.safetensors", *(f"README-{number}" for number in range(50_000))]
    listed = {name: Listed(name, 1, "0" * 64, None) for name in names}
    address = HubAddress("amy/story")
    with at_most(5), pytest.raises(FetchError, match=r"1 to 4,096 files, not 50,002"):  # with the index
        choose_model(Listing("amy/story", "a" * 40, listed), address, lambda: ["model.safetensors"])


@pytest.mark.parametrize(
    ("files", "said"),
    [("pickles", "Python pickles"), ("an adapter", "LoRA adapter"), ("projectors", "no model in GGUF")],
)
def test_weights_of_other_kinds_are_named(files: str, said: str) -> None:
    with pytest.raises(UnsupportedSource, match=said):
        chosen(files)


def test_an_adapter_is_its_weights_and_its_config_and_what_its_texts_were() -> None:
    names = [
        "adapter_config.json",
        "adapter_model.safetensors",
        "README.md",
        "tokenizer.json",
        "optimizer.pt",
        "generation_config.json",
    ]
    listing = Listing("amy/lora", "a" * 40, {name: Listed(name, 1, "0" * 64, None) for name in names})
    found = choose_adapter(listing, HubAddress("amy/lora"), tuple)
    assert {file.name for file in found.files} == {*names[:4]}
    for address in (HubAddress("amy/lora", "Q8_0"), HubAddress("amy/lora", file="README.md")):
        with pytest.raises(FetchError, match="by its repository alone"):
            choose_adapter(listing, address, tuple)
    with pytest.raises(FetchError, match="is not an adapter"):
        choose_adapter(Listing("a/b", "a" * 40, {}), HubAddress("a/b"), tuple)


@pytest.mark.parametrize(
    ("stem", "quant"),
    [
        ("Qwen3-8B-Q4_K_M", "Q4_K_M"),
        ("a/b/Story.i1-IQ3_XXS", "IQ3_XXS"),
        ("Story-UD_Q4_K_XL", "UD-Q4_K_XL"),
        ("gemma-3-4b-it-qat-q4_0", "q4_0"),
        ("Q4_K_M", "Q4_K_M"),
        ("story-fp16", "fp16"),
        ("story", None),
        ("story-Q", None),
        ("FAQ4-story", None),
    ],
)
def test_the_quant_in_a_name(stem: str, quant: str | None) -> None:
    assert quant_of(stem) == quant
