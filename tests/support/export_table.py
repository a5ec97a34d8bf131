"""docs/export.md: how mlx-lm computes what `modelkit export` lays out, for every reference.

    python -m tests.support.export_table [NAME ...]    (all: minutes; needs torch, transformers and mlx-lm)

Each reference's model is saved by transformers 5, so in its spelling and under its names, created, exported,
loaded by mlx-lm, and its logits are compared with the reference's. The outcomes are kept beside the
references, so that tests can hold the sentences of `pack.mlx_lm.limits` against them.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import modelkit
from modelkit.pack.mlx_folder.plan import plan_folder
from modelkit.pack.mlx_lm.limits import RELEASE, Limit, limits
from modelkit.pack.planning.spelling import both_spellings
from modelkit.store.store import Store
from tests.support.gguf_export_table import gguf_part
from tests.support.parity import Reference
from tests.support.tiny import write_tokenizer

ROOT = Path(__file__).resolve().parents[2]
OUTCOMES = ROOT / "tests" / "data" / "mlx_lm.json"
PAGE = ROOT / "docs" / "export.md"
BAR = 2e-3  # of the spread; mlx-lm's own approximations of gelu stay below it

HEAD = """# Export

| command | what it writes |
|---|---|
| `modelkit export NAME DIR` | a folder for `mlx_lm.load(DIR)`, [transformers](#transformers) and others |
| `modelkit export NAME DIR --form mlx-lm` | the same model in [the form of mlx-lm's classes](#mlx-lms-form) |
| `modelkit export NAME FILE.gguf` | [one file for llama.cpp](#gguf-files) and programs based on it |
| `modelkit export NAME DIR --adapter LAW` | one adapter ([adapters](import.md#in-a-package-and-out-of-it)) |

A file appears whole or not at all. If an export failed, the same command continues with the files that are
missing. The last section says of [every reference model](#reference-by-reference) what mlx-lm makes of it.

## A folder

The folder has the files of the package. `create` writes config.json in both spellings, so a checkpoint
saved by transformers 5 (`rope_parameters`, `dtype`, `num_local_experts`, ...) has the older names too
(`rope_theta`, `rope_scaling`, `torch_dtype`, `num_experts`, ...), which most classes of mlx-lm require.
Nothing that the source's file says is changed or contradicted, and transformers computes the same from it.

Files are hard links to the store's own. Only what keeps GGUF's blocks (K-quants and i-quants, see
[import.md](import.md#gguf)) is written anew, because no other program reads them there: the shards with
such blocks, config.json's `quantization` (and `quantization_config`, if there is one), and the index; of a
draft too. A table is shown before: for each type how many tensors, their size here and there, and whether
the numbers are the same; `--json` has it under `blocks`. The package itself is not changed. A matrix is
decoded a few rows at a time.

* Q4_K, Q5_K, IQ1_S, IQ2_XXS, IQ3_XXS, IQ3_S, IQ4_NL and IQ4_XS become MLX's affine codes with float32
  scales and biases: exactly the same numbers.
* Q2_K, Q3_K, Q6_K, IQ1_M, IQ2_XS and IQ2_S have scales for 16 numbers each, which MLX does not have. They
  become the nearest 8-bit codes in groups of 32 (10 bits per weight, where bf16 would take 16): no number
  is off by more than a 255th of the range of its group (or 1e-7), all together by 0.2 to 0.6 % of their
  root mean square. These are the same codes that modelkit runs on a GPU. NVFP4 with a factor beside it
  becomes the same. For floats instead, create the package from the GGUF file with `--quantize bf16` or
  `f32`.

If mlx-lm refuses a model or is known to compute it otherwise, `export` prints a note that says why.

### transformers

A package of floats (no `--quantize`, or `bf16`, `f16`, `f32`) made from a checkpoint that transformers reads
has the tensors' names and the config of that checkpoint, so transformers 5.24 computes the same from the
folder: the logits of all 292 reference models that have a class there agree with those of the checkpoint.

A package made from a GGUF file has the names of mlx-lm's classes instead. transformers finds all tensors of
most dense families there (Llama, Qwen 2 and 3, Gemma, OLMo, Granite, ...: 67 reference models agree), but
not experts (stacks in `switch_mlp` or `experts`), the split matrices of latent attention (`embed_q`,
`unembed_out`), GPT-2, or the recurrent layers of Qwen 3.5: it starts those at random and says so in
a warning alone. Make such a package from the checkpoint. MLX's packed weights transformers does not read.

## mlx-lm's form

`modelkit export NAME DIR --form mlx-lm` writes the same model in the form that mlx-lm's class expects,
wherever that class then computes the model: another `model_type`, a wrapper around it or none, names of
tensors, experts in one stack each, a head that repeats the embedding, biases of zero, a number of the
config multiplied into matrices, packed `kv_b_proj` split so that it is not packed a second time. `export`
prints each change (`--json`: `rewritten`), and what mlx-lm still computes otherwise. Files without a change
are links.

Rows of packed matrices are moved in packed form; what would change packed columns is not written, and the
note stays. A config that is written for mlx-lm is not meant for transformers. If no release of mlx-lm has
the model's mathematics, this form does not help.
"""

TABLE = """
## Reference by reference

Made by `python -m tests.support.export_table`. Every reference of [models.md](models.md) was saved by
transformers 5, created, exported and loaded by mlx-lm {release}; its logits are compared with those of
transformers in float32: {right} of {total} agree to {bar:g} of their spread; with `--form mlx-lm`,
{formed}. modelkit itself runs all of them.

- A reference has all that its family may have: biases, windows shorter than the text, groups, scaled
  positions. Published models of a family often have none of it, so look at the reason and not at the
  family's name.
- Of packed models mlx-lm's logits are those of the numbers that the codes stand for, in float32. modelkit's
  own kernels take activations as integers of 16 bits there. Random networks that react strongly show this
  as 1e-3, and as more if another expert is chosen or a near tie is decided otherwise
  (MODELKIT_KERNELS_ACTIVATIONS=f32: 2e-5, in every format of Mistral 4, whose differences were examined).
- To norms that are stored less one, as Qwen3-Next's and Qwen 3.5's, mlx-lm adds the one in the type that
  the file has: in bf16 that rounds them, by up to 1/256.

mlx-lm agrees for (largest difference): {agree}.

For the others, the last columns say what `--form mlx-lm` writes otherwise, and the result:

| reference | family | mlx-lm {release} | because | with --form mlx-lm | what is written otherwise |
|---|---|---|---|---|---|
"""
_REFUSALS = (
    AssertionError,
    AttributeError,
    IndexError,
    KeyError,
    RuntimeError,
    SystemExit,
    TypeError,
    ValueError,
)  # of mlx-lm's classes


def measure(name: str, folder: Path) -> dict[str, Any]:
    """One reference through the whole way. `odd`: a saved tensor that has another name in the reference;
    `form`: what came out in mlx-lm's form, where that is another."""
    names = export(name, folder)
    reference = Reference(name)
    odd = sorted(set(names) - set(reference.record["tensors"]))[:1]
    found: dict[str, Any] = {**_outcome(reference, folder / "out"), "odd": odd}
    with Store(folder / "home").hold("it") as package:
        planned = plan_folder(package, "mlx-lm")
    if planned.rewritten:
        modelkit.export("it", folder / "form", form="mlx-lm", home=folder / "home")
        left = [row.says for row in planned.limits or () if not row.risk]
        found["form"] = {
            **_outcome(reference, folder / "form"),
            "rewritten": list(planned.rewritten),
            "left": left,
        }
    return found


def _outcome(reference: Reference, folder: Path) -> dict[str, Any]:
    """As mlx-lm generates: with a cache."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache  # pyright: ignore[reportMissingImports]
    from mlx_lm.utils import load_model  # pyright: ignore[reportMissingImports]

    try:
        model, _ = load_model(folder, lazy=False, strict=True)
        ids = mx.array(reference.answers["ids"])[None]
        logits = np.array(model(ids, cache=make_prompt_cache(model))[0].astype(mx.float32))
    except _REFUSALS:
        return {"outcome": "refused"}
    error = reference.error(logits)
    return {"outcome": "right" if error < BAR else "wrong", "error": float(f"{error:.0e}")}


def export(name: str, folder: Path) -> list[str]:
    """The reference saved, created and exported to folder/out. Returns the names of its tensors as saved."""
    from tests.support.make_references import _reference_model, entries  # pyright: ignore[reportPrivateUsage]

    model = _reference_model(*entries()[name])
    del model.saved_shapes
    model.save_pretrained(folder / "model")
    config = json.loads((folder / "model" / "config.json").read_text(encoding="utf-8"))
    (folder / "model" / "config.json").write_text(json.dumps(without_ends(config)), encoding="utf-8")
    write_tokenizer(folder / "model", tokens=128)
    (folder / "Modelfile").write_text("FROM ./model\n", encoding="utf-8")
    modelkit.create(folder / "Modelfile", name="it", home=folder / "home")
    Store(folder / "home").export("it", folder / "out", link=False)
    index = json.loads((folder / "out" / "model.safetensors.index.json").read_text(encoding="utf-8"))
    return list(index["weight_map"])


def without_ends(config: Mapping[str, Any]) -> dict[str, Any]:
    """Some tiny configs keep their family's real end ids, which a vocabulary of 160 does not have. Tables of
    n-grams go by the end of a text.
    """
    spare = () if config.get("ple_layer_ids") else ("eos_token_id",)
    kept = {key: value for key, value in config.items() if key not in spare}
    return {key: without_ends(value) if isinstance(value, dict) else value for key, value in kept.items()}


def reasons(name: str, outcome: Mapping[str, Any]) -> tuple[Limit, ...]:
    """What an export of this reference says."""
    record = Reference(name).record
    return limits(both_spellings(record["config"]), [*record["tensors"], *outcome["odd"]])


def page(outcomes: Mapping[str, dict[str, Any]]) -> str:
    right = [name for name, one in outcomes.items() if one["outcome"] == "right"]
    table = TABLE.format(
        release=RELEASE,
        right=len(right),
        total=len(outcomes),
        formed=sum(one.get("form", one)["outcome"] == "right" for one in outcomes.values()),
        bar=BAR,
        agree=", ".join(f"{name} ({outcomes[name]['error']:.0e})" for name in right),
    )
    rows = "".join(_row(name, one) for name, one in outcomes.items() if one["outcome"] != "right")
    return HEAD + gguf_part() + table + rows


def _row(name: str, one: Mapping[str, Any]) -> str:
    family = Reference(name).record["config"]["model_type"]
    why = "; ".join(row.says for row in reasons(name, one))
    form = one.get("form", {})
    then = [_far(form) if form else "", "; ".join(form.get("rewritten", ())), *form.get("left", ())]
    said = "; but ".join(then[1:])
    return f"| {name} | {family} | {_far(one)} | {why} | {then[0]} | {said} |\n"


def _far(one: Mapping[str, Any]) -> str:
    if one["outcome"] == "refused":
        return "refused"
    return f"{'agrees' if one['outcome'] == 'right' else 'wrong'} by {one['error']:.0e}".replace(
        "agrees by", "agrees,"
    )


def main(names: list[str]) -> None:
    outcomes: dict[str, dict[str, Any]] = json.loads(OUTCOMES.read_text(encoding="utf-8"))
    for name in names or Reference.names():
        with tempfile.TemporaryDirectory() as place:
            outcomes[name] = measure(name, Path(place))
        print(name, outcomes[name], flush=True)
    outcomes = {name: outcomes[name] for name in Reference.names() if name in outcomes}
    OUTCOMES.write_text(json.dumps(outcomes, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
