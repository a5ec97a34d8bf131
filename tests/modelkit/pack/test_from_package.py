"""FROM a stored package: what is inherited, and what the Modelfile says over it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from modelkit.errors import SourceError, TemplateError
from modelkit.pack.build import Created
from modelkit.showing.texts import modelfile
from modelkit.store import build_artifact
from modelkit.store.name import Name
from modelkit.store.store import Store

Llama = Callable[..., Path]
Make = Callable[..., Created]
NAME = Name.parse("story")


def metadata(store: Store) -> dict[str, Any]:
    return json.loads(store.resolve(NAME).files["modelkit.json"].read_bytes())


@pytest.fixture
def base(llama: Llama, make: Make) -> Created:
    llama("target")
    llama("draft", num_hidden_layers=1)
    return make(
        "FROM ./target\nDRAFT ./draft\nSYSTEM be brief\nPARAMETER temperature 0.5\nPARAMETER top_k 7\n"
        "MESSAGE user hi\nLICENSE mine",
        "base",
    )


def test_a_package_made_from_a_package_alone_is_that_package(base: Created, make: Make) -> None:
    assert make("FROM base").digest == base.digest


def test_what_the_modelfile_says_replaces_what_the_package_says(
    base: Created, make: Make, store: Store
) -> None:
    make("FROM base\nPARAMETER top_k 9\nMESSAGE user bye\nMESSAGE assistant ok")
    found = metadata(store)
    assert found["parameters"] == {"temperature": 0.5, "top_k": 9}
    assert [message["content"] for message in found["messages"]] == ["bye", "ok"]
    assert found["system"] == "be brief"


def test_an_empty_system_takes_the_inherited_one_away(base: Created, make: Make, store: Store) -> None:
    make('FROM base\nSYSTEM ""')
    assert "system" not in metadata(store)


TURNS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


def test_a_template_becomes_the_models_template(base: Created, make: Make, store: Store) -> None:
    make(f'FROM base\nTEMPLATE """{TURNS}"""')
    assert store.resolve(NAME).files["chat_template.jinja"].read_text() == TURNS
    assert metadata(store)["template"] == "modelfile"
    make("FROM story", "again")
    assert store.resolve("again").digest == store.resolve(NAME).digest


def test_a_template_that_does_not_work_is_refused(base: Created, make: Make) -> None:
    with pytest.raises(TemplateError):
        make('FROM base\nTEMPLATE """{{ messages[0].nope.nope.nope }}"""')


def test_a_model_with_a_broken_template_of_its_own_is_noted(llama: Llama, make: Make) -> None:
    folder = llama("target")
    (folder / "chat_template.jinja").write_text("{{ ''.__class__.__mro__ }}")
    (note,) = make("FROM ./target").notes
    assert note.startswith("the model's chat template does not work here")


def test_licenses_are_added_without_repeats(base: Created, make: Make, store: Store) -> None:
    make("FROM base\nLICENSE mine\nLICENSE yours")
    files = store.resolve(NAME).files
    assert [files[name].read_text() for name in ("LICENSE", "LICENSE-2")] == ["mine", "yours"]
    assert "LICENSE-3" not in files


def test_draft_replaces_the_inherited_draft(base: Created, make: Make, llama: Llama, store: Store) -> None:
    llama("other", seed=5, num_hidden_layers=1)
    make("FROM base\nDRAFT ./other")
    other = store.resolve(NAME).files["draft/model.safetensors"].read_bytes()
    assert other != store.resolve("base").files["draft/model.safetensors"].read_bytes()


def test_an_empty_draft_takes_the_inherited_one_away(base: Created, make: Make, store: Store) -> None:
    assert make('FROM base\nDRAFT ""').preparation.draft is None
    package = store.resolve(NAME)
    assert not any(path.startswith("draft/") for path in package.files)
    assert modelfile(package, store).startswith('FROM base\nDRAFT ""\n')
    assert make(modelfile(package, store), "again").digest == package.digest


@pytest.mark.parametrize("line", ["DRAFT ./draft", 'DRAFT ""'])
def test_a_broken_inherited_draft_keeps_nobody_from_another(
    line: str, base: Created, make: Make, store: Store
) -> None:
    tree = {path: file.read_bytes() for path, file in store.resolve("base").files.items()}
    tree["draft/model.safetensors"] = tree["draft/model.safetensors"][:-9]
    with store.begin() as new:
        new.commit("base", build_artifact({path: new.add_bytes(data) for path, data in tree.items()}))
    with pytest.raises(SourceError, match=r"base/draft/model\.safetensors is cut off"):
        make("FROM base")
    make(f"FROM base\n{line}")


def test_a_stored_package_can_be_the_draft(base: Created, make: Make, llama: Llama, store: Store) -> None:
    llama("small", num_hidden_layers=1)
    make("FROM ./small", "small")
    created = make("FROM base\nDRAFT small")
    assert store.resolve(NAME).files["draft/config.json"] == store.resolve("small").files["config.json"]
    assert created.preparation.draft is not None


def test_the_inherited_draft_can_be_quantized_alone(base: Created, make: Make, store: Store) -> None:
    make("FROM base", quantize_draft="q8")
    files = store.resolve(NAME).files
    assert "quantization" in json.loads(files["draft/config.json"].read_bytes())
    assert files["model.safetensors"] == store.resolve("base").files["model.safetensors"]


@pytest.mark.parametrize(
    ("packed", "wanted"), [("q4", "f32"), ("q3", "bf16"), ("mxfp4", "f32"), ("q8", "f16")]
)
def test_what_mlx_has_packed_is_unpacked_to_its_numbers(
    packed: str, wanted: str, llama: Llama, make: Make, store: Store
) -> None:
    """Exactly, and rounded once to 16 bits; the rest is cast."""
    llama("target")
    make("FROM ./target", "small", quantize=packed)
    made = make("FROM small", quantize=wanted)
    config = json.loads(store.resolve("small").files["config.json"].read_bytes())["quantization"]
    before, after = (_tensors(store, name) for name in ("small", "story"))
    kind = {"f32": mx.float32, "bf16": mx.bfloat16, "f16": mx.float16}[wanted]
    for name, found in after.items():
        module = name.removesuffix(".weight")
        numbers = before[name]
        if f"{module}.scales" in before:
            row = config.get(module, config)
            scales, biases = before[f"{module}.scales"], before.get(f"{module}.biases")
            if biases is not None:
                scales, biases = scales.astype(mx.float32), biases.astype(mx.float32)
            packing = row["group_size"], row["bits"], row["mode"]
            numbers = mx.dequantize(numbers, scales, biases, *packing)
        assert found.dtype == kind
        assert mx.array_equal(found, numbers.astype(kind)), name
    assert after.keys() == {name for name in before if not name.endswith((".scales", ".biases"))}
    assert "quantization" not in json.loads(store.resolve(NAME).files["config.json"].read_bytes())
    assert any("were already quantized as" in note and packed in note for note in made.notes)


def _tensors(store: Store, name: str) -> dict[str, Any]:
    found = mx.load(str(store.resolve(name).files["model.safetensors"]), format="safetensors")
    assert isinstance(found, dict)
    return found
