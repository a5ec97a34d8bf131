"""docs/models.md: every family with what its layers remember, who can draft for it, and how far its logits
are from transformers'.

python -m tests.support.models_table [NAME ...]    measures all references again (minutes), or those alone
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from runtime.models import ARCHITECTURES, architecture_name, describe, find_family
from runtime.models.multimodal.text_models import TEXTS
from runtime.models.registry.names import module_name
from runtime.models.registry.refused import REFUSED
from runtime.trunks.taps import taps_of
from tests.support.half import Half
from tests.support.parity import Reference, cut_logits, full_logits

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"

HEAD = """# Models

**Does a model run?** Look in its config.json: a name in `architectures`, or `model_type`, has to be in the
[list of names](#names). `create` refuses all others by name. Of multimodal models the text model runs, and
what is for images and sound is left out with a note.

**What can draft for it?** Prompt lookup can for every model, and a small model with the same tokenizer for
every one without an encoder. The column `drafts` says what else can: *head*, a draft head in the model's own
file (MTP), if the file has one; *assistant*, a Gemma 4 assistant; *block*, a block diffusion draft (DFlash).

**How exactly is it computed?** The tables say it, and [notes](#notes-on-some-families) say where other
programs differ.

This page is made by `python -m tests.support.models_table`.

## Models that write text

Every row is a tiny checkpoint with random weights that has all layer kinds and optional tensors of its
family. Its logits are compared with those of transformers in float32. The figures are the largest
difference over {tokens} positions, in units of the spread of the reference's logits.

- *f32 at once*: the text is read in one step. *f32 by token*: it is read token by token through layer
  memory. (Windows are far shorter than the text, so they move several times.)
- *bf16* and *f16*: the same checkpoint stored in these types, as most files are published. All are computed
  in float32, by transformers too, as on a processor. A GPU computes in the type of the file; there, errors
  are those of that type.
- The test suite accepts less than five times what the reference's own logits change when its weights change
  by their last bit (2e-5 to 7e-4). It requires this for both spellings of config.json and in batches of
  texts of different lengths, and also 64 equal greedy tokens.
- A * after the architecture marks kinds that transformers has no class for: their code came with their
  checkpoints. They are compared with mlx-lm's classes in float32, Baichuan 1 and 2 and Ouro with their
  authors', and each was read beside a second program: its authors', vLLM's or llama.cpp's. Where those
  differ, the authors' counts.

| reference | architecture | layers remember | drafts | f32 at once | f32 by token | bf16 | f16 |
|---|---|---|---|---|---|---|---|
"""

ENCODERS = """
## Encoders

Encoders for embeddings (`modelkit embed`, `Model.embed`, `/v1/embeddings`, `/api/embed`) write no text and
remember nothing. Their hidden states are compared in the same way, of texts read whole, alone and side by
side. On a processor with kernels a text's vector is the same bits in any batch.

transformers has no class for Jina's second embeddings and for Nomic's with experts (jina_bert_v2,
nomic_bert_moe): theirs are written in tests/support after text-embeddings-inference. Only `auto_map` says
which of two classes Jina's have, by the name jina-bert-implementation or jina-bert-v2-qk-post-norm; a file
that says neither is refused.

| reference | architecture | f32 | bf16 | f16 |
|---|---|---|---|---|
"""

NOTES = """
## Notes on some families

- **LongRoPE** (Phi-3, Phi-4 mini and others) has two sets of factors: for texts of up to the model's
  original length, and for longer ones, in which all tokens are rotated by the long factors. What follows n
  tokens is what one pass over these n tokens says, as in transformers, so the same prompt and seed give the
  same text whatever `num_predict`, batch, draft or cache. An answer that crosses the original length is
  therefore read once more at that token (transformers' Phi-3 does the same), which costs one prefill of
  that length. Phi-3.5-MoE is computed by the same rule; transformers 5.23 gives its class the short factors
  whatever the text's length, so answers after longer texts differ from it (mlx-lm agrees with us there).
- **MiniMax-Text-01 and M1.** Files say how much of a head is rotated (`rotary_dim`), and their weights were
  trained so. transformers 5.24's class rotates whole heads; minimax_window is compared with that class
  after its rotation was made MiniMax M2's.
- **MiniMax M3.** Files say it twice (partial_rotary_factor and `rotary_dim`), and of two programs each uses
  another of them. A file in which these differ is refused, and so is one with another number of index heads
  than of key heads.
- **Hunyuan V4.** transformers 5.24's class of hy_v4 rotates halves of heads and takes 1e-6 in two of its
  norms. The authors' class in vLLM, llama.cpp and transformers' class of the multimodal Hunyuan V4 rotate
  neighbours and take rms_norm_eps, and so does modelkit. References are of that class with these two
  corrected.
- **DBRX.** Files say the base of its rotation in `attn_config`. Its authors' code, llama.cpp, mlx-lm and
  modelkit read it there; transformers 5.24 no longer does and takes 10000. A file that says one base there
  and another beside it is refused.
- **Ouro.** Layers are passed four times, with memories of their own in each pass: a token takes four times
  the memory and the work that its size says. A gate beside them says after each pass whether it is enough;
  in the authors' class a token ends early if the probabilities up to there reach early_exit_threshold. That
  is 1 in published files, which only rounding can reach, and modelkit makes all passes, as llama.cpp and
  vLLM do; a lower threshold is refused. Nanbeige 4.2 makes two passes.
- **Doge.** A context ends at keep_window_size (2048 in published files): after that keys would be chosen.
  Mixtures are refused, as transformers' class routes tokens of a prompt by what stands elsewhere in it.
- **Dory 2.** Files that keep memories of the last pass alone (recurrent_kv_cache_mode) are refused: their
  answers would depend on how a prompt is cut.
- **Where authors and mlx-lm differ** (rows with *). A tied head of MiniCPM reads what is scaled.
  DeepSeekMoE divides the weights of chosen experts by their sum if norm_topk_prob says so. The first Qwen
  ends at seq_length, after which its class rescales rotation and scores. Phi-3-small's sparse layers see
  only blocks of the past; mlx-lm's see later tokens of a block too.
- **Inkling and Inkling 2.** Scores have a part that each query says of the distance. It is made for some
  tokens of a step at a time, so that it takes half a GB at most, however long the context.
- **Experts in MXFP8 or NVFP4** in files of Inkling, MiniMax M3, Hunyuan V4 and Muse Spark are read as they
  are ([import.md](import.md)).
- **Qwen4.** Its tables of n-grams begin anew after an end of text: of several ends the first counts, as in
  transformers; llama.cpp's converter takes the last. Its indexer sees whole blocks and what follows them,
  as there; llama.cpp fills its budget with a part of one more block.
- **Indexers.** If blocks have the same score, and many do if no head answers, the earlier ones are seen;
  transformers' choice is that of a sort. The same holds for tokens in the indexers of DeepSeek, GLM-5 and
  A.X K2; transformers' classes, given a stable sort, compute what modelkit does.
- **Chameleon.** Ids of parts of images are never drawn, as in transformers' class.
- **Multimodal models.** Most wrappers of transformers have no row here. They may contain text models of
  type {texts}. A factor on logits (Cohere's, Granite's) is left out there, as transformers does.
"""

NAMES = """
## Names

Names of `architectures` and `model_type` in config.json that are run:

{names}

Anything else is refused by name at `create`. For these the refusal says why:

{refused}
"""


@dataclass(frozen=True)
class Line:
    name: str
    architecture: str
    layout: str
    drafts: str
    whole: float
    stepped: float
    bf16: float
    f16: float

    def markdown(self) -> str:
        facts = (self.name, self.architecture, self.layout, self.drafts)
        figures = (self.whole, self.stepped, self.bf16, self.f16)
        return f"| {' | '.join((*facts, *(f'{figure:.0e}' for figure in figures)))} |\n"


def drafts(name: str) -> str:
    """Who can draft for a reference's family, by its code: a head that it builds, memory that an assistant
    reads, a trunk that can be tapped.
    """
    config = Reference(name).record["config"]
    described = describe({**config, "num_nextn_predict_layers": 1})
    head = described.family.head
    kinds = {
        "head": head is not None and bool(head.layout(described.config)),
        "assistant": module_name(config) == "gemma4",
        "block": taps_of(described.family.build(described.config)) is not None,
    }
    return ", ".join(kind for kind, can in kinds.items() if can) or "none"


def named(reference: Reference) -> str:
    """Its architecture, with the mark of those that are compared with mlx-lm's class."""
    return architecture_name(reference.record["config"]) + "*" * ("transformers" not in reference.record)


def measure(name: str) -> Line:
    reference = Reference(name)
    with tempfile.TemporaryDirectory() as place:
        model = reference.load(Path(place))
        ids = reference.answers["ids"]
        whole = reference.error(full_logits(model, ids))
        stepped = reference.error(cut_logits(model, ids, [1]))
        halves = [Half(name, word) for word in ("bf16", "f16")]
        stored = [half.error(full_logits(half.load(Path(place)), half.ids)) for half in halves]
    kinds = Counter(spec.kind for spec in model.described.layout)
    layout = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return Line(name, named(reference), layout, drafts(name), whole, stepped, *stored)


def encoder(name: str) -> str:
    """Its row."""
    reference = Reference.called(name)
    with tempfile.TemporaryDirectory() as place:
        whole = reference.error(full_logits(reference.load(Path(place)), reference.answers["ids"]))
        halves = [Half(name, word) for word in ("bf16", "f16")]
        stored = [half.error(full_logits(half.load(Path(place)), half.ids)) for half in halves]
    figures = " | ".join(f"{figure:.0e}" for figure in (whole, *stored))
    return f"| {name} | {architecture_name(reference.record['config'])} | {figures} |\n"


def page(lines: list[str]) -> str:
    tokens = len(np.atleast_1d(Reference(Reference.names()[0]).answers["ids"]))
    models = HEAD.format(tokens=tokens) + "".join(lines)
    encoders = ENCODERS + "".join(map(encoder, Reference.encoders()))
    return (
        models
        + encoders
        + NOTES.format(texts=", ".join(TEXTS))
        + NAMES.format(names=by_letter(ARCHITECTURES), refused=refused())
    )


def refused() -> str:
    """A line for each reason."""
    kinds: dict[str, list[str]] = {}
    for name, why in REFUSED.items():
        kinds.setdefault(why, []).append(f"`{name}`")
    return "\n".join(f"- {', '.join(sorted(names, key=str.lower))}: {why}." for why, names in kinds.items())


def by_letter(names: Iterable[str]) -> str:
    """A line for each first letter, in whatever case."""
    ordered = sorted(names, key=str.lower)
    letters = groupby(ordered, key=lambda name: name[0].upper())
    return "\n".join(f"- {', '.join(f'`{name}`' for name in begun)}" for _, begun in letters)


def main(names: list[str]) -> None:
    rows = PAGE.read_text(encoding="utf-8").splitlines(keepends=True)
    lines = {row.split(" | ")[0].removeprefix("| "): row for row in rows if row.startswith("| ")}
    for name in names or Reference.names():
        find_family(Reference(name).record["config"])
        lines[name] = measure(name).markdown()
        print(lines[name], end="", flush=True)
    PAGE.write_text(page([lines[name] for name in Reference.names()]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
