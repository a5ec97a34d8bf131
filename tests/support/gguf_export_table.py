"""The part of docs/export.md about GGUF: what becomes of each format, asked of the function that decides."""

from modelkit.pack.gguf.type_choice import Scales, TypeChoice, choose_type
from modelkit.source.prequantized import Packing
from runtime.blocks.types import BLOCK_TYPES
from runtime.quant import FORMATS, Format

_WIDTH = 256  # of rows that divide into whole blocks of every type
_USUAL = Scales(half=True, middle=False, largest=1.0)
_HOW = {"copied": "the same bytes", "converted": "the same numbers", "rounded": "the nearest numbers"}

HEAD = """
## GGUF files

`modelkit export NAME FILE.gguf` writes the package as one file for llama.cpp and programs based on it, with
tokenizer and chat template; `--draft` writes the draft into a file of its own. Before anything is written,
a table says which types there will be and what is exact. No file is ever overwritten.
[import.md](import.md#architectures-of-gguf) lists the architectures; a model of another one is refused.

| stored as | bits per weight | GGUF type | bits per weight | what the file says |
|---|---|---|---|---|
"""

FOOT = """
* **Imported GGUF files** are written again byte for byte: blocks that are kept as they are, and those that
  became MLX's codes, whose offsets put zero in the middle (Q4_0, Q5_0, Q8_0, Q2_0, Q1_0). The two ternary
  types come back as Q2_0, the same numbers.
* **Scales** of these types are 16-bit floats. Those of a package are too, or nearly always fit: weights
  near zero have scales too small, which are off by 3e-8 at most, and packages made of float32 weights have
  float32 scales, which are rounded. The table before the export says where.
* **Norms, biases, routers and short convolutions** become float32, as llama.cpp requires: the same numbers
  in more bits. Norms that are stored less one, and decays that are stored as logarithms, are computed in
  float32.
* **The tokenizer** becomes llama.cpp's lists of pieces, types, merges or scores, with the name of its way
  to split text. That is recognized by its expressions, or by what it does to texts for which all 91 names
  differ. The metadata are read back before anything is written, and must give the same ids; a tokenizer
  that llama.cpp has nothing like is refused. tokenizer.json itself is included
  (`tokenizer.huggingface.json`), so that what is imported again is the same tokenizer. What llama.cpp
  cannot express (composing of characters, blanks that tokens take) is noted, and so are texts of its pieces
  that get other ids.
* **Drafts.** `--draft` writes language models, Gemma 4's assistants without their clusters, and block
  drafts (DFlash) with the vocabulary of their target. Drafts of Laguna and Muse Glimmer are refused by
  name. Draft heads after a model's layers are included if llama.cpp's architecture has a place for them
  ([import.md](import.md)).
* **Other data.** Provenance, licence and sampling go into `general.*`, with what an imported file said
  there of its making (authors, tags, base models). SYSTEM, MESSAGE, other parameters and texts of licences
  have no place there, and a note says which are left out.
* **What GGUF cannot say** of a model is never dropped silently: before a byte is written, the file's
  metadata are read back as an import reads them, and a value of the model that would be another one (an
  activation, a field of a scaled rotation) is named and refused.

`python -m tests.support.llama_cpp_check` compares llama.cpp's logits on exported models with those of
transformers, if llama-cpp-python is installed: in float32, with a memory of float32, they agree to 1e-4 of
their spread (0.003 with GELU, which llama.cpp looks up in a table of 16-bit floats), unless a note of the
export says what llama.cpp does otherwise. By itself llama.cpp keeps keys and values in 16 bits, which shows
as 0.01, and it rounds activations of packed matrices to 8 bits, so near ties may be decided otherwise than
here. Found in this way, and noted at such an export: no windows for EXAONE 4 below 64 layers, Phi-3 and
Mistral, other numbers of a head rotated in Bamba, groups of experts of DeepSeek V2, biases of MiMo V2
Flash, YaRN's attention factor and band (but for Mistral 3 and 4).
"""


def gguf_part() -> str:
    return HEAD + "".join(_row(row) for row in FORMATS if not row.name.startswith("q") or _shown(row)) + FOOT


def _shown(row: Format) -> bool:
    return row.group_size == 64 or row.bits == 4


def _row(row: Format) -> str:
    chosen = (
        choose_type(Packing(row.bits, row.group_size, row.mode), _WIDTH, _USUAL)
        if row.mode
        else TypeChoice(row.name, "copied")
    )
    stored = BLOCK_TYPES[chosen.type].bits_per_weight
    why = f": {chosen.why}" if chosen.why else ""
    return (
        f"| {row.name} | {row.bits_per_weight:.4g} | {chosen.type.upper()} | {stored:.4g} | "
        f"{_HOW[chosen.how]}{why} |\n"
    )
