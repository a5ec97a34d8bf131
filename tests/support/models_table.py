"""docs/models.md: every family with what its layers remember, who can draft for it, and how far its logits
are from transformers'.

python -m tests.support.models_table [NAME ...]    measures all references again (minutes), or those alone
"""

import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runtime.models import ARCHITECTURES, architecture_name, describe, find_family
from runtime.models.multimodal import TEXTS
from runtime.models.names import module_name
from runtime.trunks.taps import taps_of
from tests.support.half import Half
from tests.support.parity import Reference, cut_logits, full_logits

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"

HEAD = """# Models

Made by `python -m tests.support.models_table`. Every row is a tiny checkpoint with random weights that uses
all layer kinds and optional tensors of its family; its logits are compared with those of transformers in
float32. The figures are the largest difference over {tokens} positions in units of the spread of the
reference's logits: read at once, and token by token through layer memory (windows are far shorter than the
text, so they are driven past their end several times). Three checkpoints are read: in float32, and in bf16
and f16, as files are published; all are computed in float32, by transformers too, as on a processor. The
suite asks for less than five times what the reference's own logits move when its weights move by their last
bit (2e-5 to 7e-4), for both spellings of config.json, in ragged batches, and for 64 equal greedy tokens. A
GPU computes in the type of the file; there errors are those of that type.

LongRoPE (Phi-3, Phi-4 mini and others) has two sets of factors: for texts of up to the model's original
length, and for longer ones, all of whose tokens are then turned by the long factors. What follows n tokens is
what one pass over these n tokens says, as in transformers, so the same prompt and seed give the same text
whatever `num_predict`, batch, draft or cache. An answer that crosses the original length is therefore read
once more at that token (transformers' Phi-3 does the same), which costs one prefill of that length.
Phi-3.5-MoE is computed by the same rule; transformers 5.23 gives its class the short factors whatever the
text's length, so answers behind longer texts differ from it (mlx-lm agrees with us there).

Files of MiniMax-Text-01 and M1 say how much of a head is rotated (`rotary_dim`), and their weights were
trained so. transformers 5.24's class rotates whole heads; minimax_window is compared with that class after
its rotation was made MiniMax M2's.

transformers 5.24's class of hy_v4 turns halves of Hunyuan V4's heads and takes 1e-6 in two of its norms. The
authors' class in vLLM, llama.cpp and transformers' class of the multimodal Hunyuan V4 turn neighbours and
take rms_norm_eps, and so does modelkit; references are of its class after these two were put right.

Files of MiniMax M3 say it twice (partial_rotary_factor and `rotary_dim`), and each of two programs goes by
one; a file in which these differ is refused. So is one with another number of index heads than of key heads.

Files of DBRX say the base of its rotation in `attn_config`, where its authors' code, llama.cpp and mlx-lm
read it, and modelkit does. transformers 5.24 reads it there no longer and takes 10000 instead; a file that
says one base there and another beside it is refused.

Layers of Ouro are passed four times, with memories of their own in each pass: a token takes four times the
memory and the work that its size says. A gate beside them says after each pass whether it is enough; in the
authors' class a token ends early where the probabilities up to there reach early_exit_threshold. That is 1 in
published files, which only rounding can reach, and modelkit makes all passes, as llama.cpp and vLLM do; a
lower threshold is refused. So are files of Dory 2 that keep memories of the last pass alone
(recurrent_kv_cache_mode): what they answer would hang on how a prompt is cut. Nanbeige 4.2 makes two passes.

Rows whose architecture is followed by * are of kinds that transformers has no class for: their code came with
their checkpoints. They are compared with mlx-lm's classes in float32, Baichuan 1 and 2 and Ouro with their
authors', and each was read beside a second program: its authors', vLLM's or llama.cpp's. Where those differ,
the authors' counts: a tied head of MiniCPM reads what is scaled, DeepSeekMoE divides the weights of chosen
experts by their sum if it is told so (norm_topk_prob), the first Qwen ends at seq_length, behind which its
class rescales rotation and scores, and Phi-3-small's sparse layers see blocks of the past alone, where
mlx-lm's see later tokens of a block too.

Scores of Inkling and Inkling 2 have a part that each query says of the distance. It is made for some tokens
of a step at a time, so that it takes half a GB at most, however long the context. Files whose experts are
MXFP8 or NVFP4 are read as they are (import.md), as are those of MiniMax M3, Hunyuan V4 and Muse Spark.
Qwen4's tables of n-grams begin anew behind an end of text: of several ends the first, as in transformers;
llama.cpp's converter takes the last. Its indexer sees whole blocks and what is behind them, as there;
llama.cpp fills its budget with a part of one more block. Of blocks that score alike, and many do where no
head answers, the earlier ones are seen; transformers' choice is that of a sort. So it is with tokens in the
indexers of DeepSeek, GLM-5 and A.X K2; its classes given a stable sort compute what modelkit does.

Multimodal models run their text model alone, and what is for images and sound is left out with a note. Most
wrappers of transformers have no row here; inside them may lie text models of type {texts}. A factor on
logits (Cohere's, Granite's) is left out there, as transformers does.

Drafts: what can guess tokens for the family beside prompt lookup and any small model with its tokenizer,
which can for all. Head: a draft head in the model's own file (MTP), where the file has one. Assistant: a
Gemma 4 assistant. Block: a block diffusion draft (DFlash).

| reference | architecture | layers remember | drafts | f32 at once | f32 by token | bf16 | f16 |
|---|---|---|---|---|---|---|---|
"""

ENCODERS = """
Encoders for embeddings (`modelkit embed`, `Model.embed`, `/v1/embeddings`, `/api/embed`) write no text and
remember nothing. Their hidden states are compared in the same way, of texts read whole, alone and side by
side; on a processor with kernels a text's vector is the same bits in any company. transformers has no class
for Jina's second embeddings and for Nomic's with experts (jina_bert_v2, nomic_bert_moe): theirs are written
in tests/support after text-embeddings-inference. Which of two classes Jina's are of, `auto_map` says alone,
by the name jina-bert-implementation or jina-bert-v2-qk-post-norm; a file that says neither is refused.

| reference | architecture | f32 | bf16 | f16 |
|---|---|---|---|---|
"""

FOOT = """
Names of `architectures` and `model_type` in config.json that are run: {names}.

Anything else is refused by name at `create`.
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
    names = ", ".join(f"`{name}`" for name in sorted(ARCHITECTURES, key=str.lower))
    tokens = len(np.atleast_1d(Reference(Reference.names()[0]).answers["ids"]))
    encoders = ENCODERS + "".join(map(encoder, Reference.encoders()))
    head = HEAD.format(texts=", ".join(TEXTS), tokens=tokens) + "".join(lines)
    return head + encoders + FOOT.format(names=names)


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
