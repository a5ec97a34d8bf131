"""docs/foreign.md: which classes of mlx-lm are run, how far they are from transformers, and what is refused.

python -m tests.support.foreign_table    measures all references again and rewrites the page (a minute)
"""

import re
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path

from runtime.errors import UnsupportedModel
from runtime.models import describe
from runtime.models.foreign.refused import REFUSED
from tests.support.foreign_references import ForeignReference
from tests.support.parity import cut_logits, full_logits

_EVERYWHERE = ("is_causal", "rope_scaling stands")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "foreign.md"

HEAD = """# Architectures that modelkit has no file for

Made by `python -m tests.support.foreign_table`. modelkit computes the families of [models.md](models.md)
itself. Others ({kinds}) run through the model classes of
[mlx-lm](https://github.com/ml-explore/mlx-lm) {release}, behind modelkit's own layer memory:

```
pip install "mlx-lm>=0.32.2,<0.33"
```

Packages, quantization, prefix reuse, batches and speculation work as for any other model. `create`, `run` and
`load` print a note that such a model runs through mlx-lm's class, and `show` says it.

Only classes with stored references run. Each row below is a tiny checkpoint with random weights; its logits
are compared with those of transformers {transformers} in float32, and the figures are the largest difference
in units of their spread: read at once, token by token, and from a bfloat16 file (against transformers in
float32 over the same rounded weights, as a processor computes it). The suite asks for less than 1e-4, for
both spellings of config.json, in ragged batches, and for 64 equal greedy tokens.

| mlx-lm's file | model_type | architecture | at once | by token | bfloat16 | rows at different positions |
|---|---|---|---|---|---|---|
"""

FIELDS = """
## Fields

mlx-lm's classes do not read every field of a config, so they are never handed one. Each field that
transformers reads for the kind was changed there ({changes} changes, all stored with transformers' answer):
where the answer moved, modelkit's moves to the same place, or the field is refused by name. What the file
leaves out is what transformers takes for it.

Refused although transformers computes it, in every kind: `is_causal: false`, and `rope_scaling` beside a
`rope_parameters` that says something else. Besides:

"""

TENSORS = """
## Tensors

What a class's `sanitize` makes of a checkpoint is compared with what went in. Stored rotary tables and a
head that repeats a tied embedding may go; any other tensor that would vanish is refused by name.

## Not run

| because | model_type |
|---|---|
"""

FOOT = """
Anything else is refused by name at `create`. Code from a checkpoint is never run: `model_file` in a
config.json is refused, and `model_type` only selects among the files above. mlx-lm's internals are used, so
one minor release is taken (0.32); another one is refused by name.
"""


def row(reference: ForeignReference) -> str:
    kind, ids = reference.kind, reference.answers["ids"]
    model = reference.load()
    whole = reference.error(full_logits(model, ids))
    stepped = reference.error(cut_logits(model, ids, [1]))
    rounded = reference.error(full_logits(reference.load(rounded=True), ids), "rounded")
    figures = " | ".join(f"{error:.0e}" for error in (whole, stepped, rounded))
    rows = "together" if kind.ragged else "one by one"
    types, classes = ", ".join(kind.types), ", ".join(kind.classes)
    return f"| {kind.file} | {types} | {classes} | {figures} | {rows} |\n"


def refusals(reference: ForeignReference) -> str:
    """One line, from the changes that move transformers' answer and are refused."""
    said: dict[str, str] = {}
    for change, entry in reference.changes.items():
        if entry["outcome"] == "moved":
            try:
                describe(reference.changed(change))
            except UnsupportedModel as refusal:
                text = str(refusal).removeprefix("config.json: ").replace(f"{reference.kind.who} ", "it ")
                said.setdefault(re.sub(r"\d+", "", text).partition(" is ")[0], text)
    said = {key: text for key, text in said.items() if not text.startswith(_EVERYWHERE)}
    return f"- **{reference.name}**: {'; '.join(said.values())}.\n"


def not_run() -> str:
    reasons: dict[str, list[str]] = defaultdict(list)
    for name, why in sorted(REFUSED.items(), key=lambda one: one[0].lower()):
        reasons[why.partition(" is not run: ")[2]].append(name)
    return "".join(f"| {why} | {', '.join(names)} |\n" for why, names in reasons.items())


def page() -> str:
    references = [ForeignReference(name) for name in ForeignReference.names()]
    changes = sum(entry["outcome"] != "refused" for one in references for entry in one.changes.values())
    versions = {"release": version("mlx-lm"), "transformers": references[0].record["transformers"]}
    head = HEAD.format(kinds=", ".join(one.name for one in references), **versions)
    return (
        head
        + "".join(map(row, references))
        + FIELDS.format(changes=changes)
        + "".join(map(refusals, references))
        + TENSORS
        + not_run()
        + FOOT
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
