"""A file that an import would compute otherwise is not written."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import modelkit
from modelkit.errors import UnsupportedSource
from modelkit.pack.gguf.export import plan_gguf
from modelkit.pack.gguf.read_back import differences
from modelkit.store.store import Store
from runtime.models import find_family
from runtime.nn.positions.rope_spec import RopeSpec
from tests.support.checkpoints import write_checkpoint
from tests.support.gguf_round import exported, file_numbers
from tests.support.tiny import CONFIG, llama_shapes, write_tokenizer

_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_act": "gelu"}, "`activation` is 'gelu'.* as 'silu'"),
        ({"hidden_act": "swish"}, None),
        ({"rope_parameters": {**_YARN, "truncate": False}}, r"`ropes\[0\].wavelengths"),
        ({"rope_parameters": {**_YARN, "mscale": 1.2, "mscale_all_dim": 0.8}}, None),
        ({"rope_parameters": {**_YARN, "attention_factor": 1.3, "beta_fast": 8.0}}, None),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "beta_fast": None}}, None),
        (
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "factor": 7.5,
                    "low_freq_factor": 1.5,
                    "high_freq_factor": 5.0,
                }
            },
            None,
        ),
        (
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "rope_theta": 1000000.0,
                    "factor": 2.0,
                    "low_freq_factor": 0.5,
                    "high_freq_factor": 1.0,
                    "original_max_position_embeddings": 100,
                }
            },
            "could not be read again",
        ),
    ],
)
def test_what_an_import_would_not_give_back_is_not_written(
    change: dict[str, Any], said: str | None, tmp_path: Path
) -> None:
    config = {**CONFIG, "tie_word_embeddings": False, **change}
    write_checkpoint(tmp_path / "model", config, llama_shapes(config))
    write_tokenizer(tmp_path / "model")
    modelkit.create(modelkit.Modelfile.parse(f"FROM {tmp_path / 'model'}"), name="it", home=tmp_path / "home")
    with Store(tmp_path / "home").hold("it") as package:
        if said is not None:
            with pytest.raises(UnsupportedSource, match=said):
                plan_gguf(package)
            return
        exported(package, tmp_path / "it.gguf")
    again = file_numbers(tmp_path / "it.gguf")[1].config
    parsed = [find_family(one).parse(one) for one in (config, again)]
    assert not list(differences(*parsed))


def test_places_that_differ_are_named_and_those_of_a_float32_are_the_same() -> None:
    spec = RopeSpec(8, (1.0, 10.0))
    other = replace(spec, wavelengths=(1.0, 10.000001))
    assert not list(differences(spec, other))
    found = list(differences(spec, replace(spec, wavelengths=(1.0, 11.0), dims=4)))
    assert found == [("dims", 8, 4), ("wavelengths[1]", 10.0, 11.0)]
    assert [place for place, *_ in differences(spec, replace(spec, dims=4), {"dims"})] == []
