"""SentencePiece models whose pieces have other ids than in their file: those of a `vocab.json` beside it
(M2M100's, Marian's), or those that a class of transformers gives them (mBART's, Pegasus'), or that have more
behind them than their file (ChatGLM's).

A piece that the model does not have (in Marian's, those of the target alone) is written and never found in a
text: it stands behind a blank, of which normalized texts have none. One that has no id is left out, so that
others take its place; transformers' classes call it unknown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.vocabulary.bpe import replaced
from modelkit.source.gguf.vocabulary.pieces import CONTROL, MOST_PIECES, NORMAL, UNKNOWN, Vocabulary
from modelkit.source.vocabularies.document import added
from runtime.records import dataclass

WITH_WORDS = "source.spm", "sentencepiece.bpe.model"
"""Files beside which a vocab.json says the ids."""

_SPECIAL = ("<s>", "<pad>", "</s>")
_UNKNOWN = "<unk>"
_BLANK = " "
_MBART = """
    ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM
    ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN
"""
_MBART50 = (
    _MBART
    + """
    af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE
    sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI
"""
)
_M2M100 = """
    af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr
    ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or
    pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu
"""
_WMT21 = "en ha is ja cs ru zh de"
_CHATGLM = (
    *("[MASK]", "[gMASK]", "[sMASK]", "sop", "eop"),
    *("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
)
_PEGASUS = ("<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{place}>" for place in range(2, 103)))


@dataclass(frozen=True, slots=True)
class Arranged:
    """Which pieces a model has, and what frames its texts."""

    pieces: Sequence[str]
    """By id."""
    special: Sequence[str]
    """Those of them that are not text, `<unk>` apart."""
    behind: Sequence[Mapping[str, Any]] = ()
    """Added tokens besides."""
    first: tuple[str, ...] = ()
    """What begins a bare prompt."""
    last: str | None = None
    """What ends one. Frames with languages are those of the class, which whoever loads it knows."""
    class_: str | None = None
    """The tokenizer's class, where its files may leave it out."""


Arrange = Callable[[Sequence[str]], Arranged]
"""From the pieces of a file."""


def by_class(config: Mapping[str, Any]) -> Arrange | None:
    """For the class that tokenizer_config.json names; None: ids are those of the file."""
    return _BY_CLASS.get(str(config.get("tokenizer_class") or "").removesuffix("Fast"))


def by_words(vocab: Mapping[str, Any], config: Mapping[str, Any], label: str, *, pair: bool) -> Arrange:
    """For a vocab.json. pair: it is that of two models, and what is written is said before a text. Raises
    MalformedFile for ids that are not those from 0 on.
    """
    pieces = sorted(vocab, key=lambda piece: vocab[piece] if type(vocab[piece]) is int else -1)
    if [vocab[piece] for piece in pieces] != [*range(len(pieces))] or len(pieces) > MOST_PIECES:
        raise MalformedFile(f"{label} has ids that are not those from 0 on, one for each piece")
    if _UNKNOWN not in vocab or "</s>" not in vocab:
        raise MalformedFile(f"{label} has no {_UNKNOWN} or no </s>")
    special = [piece for piece in _SPECIAL if piece in vocab]
    if pair:
        codes = [piece for piece in pieces if piece.startswith(">>") and piece.endswith("<<")]
        behind = [added(vocab[piece], piece, special=False) for piece in codes]
        return lambda _: Arranged(pieces, special, behind, last="</s>", class_="MarianTokenizer")
    languages = _WMT21 if config.get("language_codes") == "wmt21" else _M2M100
    tokens = [
        added(len(pieces) + place, f"__{one}__", special=True) for place, one in enumerate(languages.split())
    ]
    return lambda _: Arranged(pieces, special, tokens, class_="M2M100Tokenizer")


def arranged(own: Vocabulary, order: Arranged, label: str) -> Vocabulary:
    """A file's pieces under these ids. Raises UnsupportedSource where they are another model's."""
    scores = dict(zip(own.pieces, own.scores or (), strict=False))
    types = dict(zip(own.pieces, own.types, strict=True))
    if 2 * sum(piece in scores for piece in order.pieces) < len(scores):
        raise UnsupportedSource(f"{label} has hardly a piece of those that have ids")
    kinds = {**dict.fromkeys(order.special, CONTROL), _UNKNOWN: UNKNOWN}
    known = {*scores, *kinds, *(token["content"] for token in order.behind)}
    pieces = [piece if piece in known else _BLANK + piece for piece in order.pieces]
    return replace(
        own,
        pieces=pieces,
        types=[kinds.get(piece, types.get(piece, NORMAL)) for piece in pieces],
        ids={piece: one for one, piece in enumerate(pieces)},
        scores=[scores.get(piece, 0.0) for piece in pieces],
    )


FOUND_NEVER = replaced(_BLANK, "")
"""The decoder of the blank that stands before some."""


def _mbart(languages: str) -> Arrange:
    special = (*_SPECIAL, *languages.split(), "<mask>")
    return lambda own: Arranged([*special[:3], _UNKNOWN, *own[3:], *special[3:]], special)


def _pegasus(own: Sequence[str]) -> Arranged:
    return Arranged([*_PEGASUS, *own[2:]], _PEGASUS, last="</s>")


def _chatglm(own: Sequence[str]) -> Arranged:
    """ChatGLM3's; ChatGLM2 has the first five of these tokens."""
    behind = [added(len(own) + place, text, special=True) for place, text in enumerate(_CHATGLM)]
    return Arranged(own, own[1:3], behind, first=("[gMASK]", "sop"))


_BY_CLASS: dict[str, Arrange] = {
    "ChatGLMTokenizer": _chatglm,
    "MBartTokenizer": _mbart(_MBART),
    "MBart50Tokenizer": _mbart(_MBART50),
    "PegasusTokenizer": _pegasus,
}
