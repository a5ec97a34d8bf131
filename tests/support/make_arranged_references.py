"""Ids of texts by transformers' classes whose pieces have other ids than in their SentencePiece model (run by
hand, with both).

    python -m tests.support.make_arranged_references

Models are made of this project's own documents. A source has files by name (base64), and what its
tokenizer_config.json says.
"""

import base64
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import sentencepiece
import transformers

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests" / "data" / "arranged_vocabularies.json"
SIZE, CASES = 160, 12
FOREIGN = "zwölf"
"""Pieces of a target that its source does not have."""


def model(lines: list[str], **options: Any) -> bytes:
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, vocab_size=SIZE, character_coverage=0.98,
        hard_vocab_limit=False, minloglevel=5, num_threads=1, normalization_rule_name="identity", **options,
    )  # fmt: skip
    return out.getvalue()


def pieces(data: bytes) -> list[str]:
    own = sentencepiece.SentencePieceProcessor(model_proto=data)
    return [own.id_to_piece(one) for one in range(own.get_piece_size())]


def sources(lines: list[str]) -> dict[str, tuple[dict[str, bytes], dict[str, Any]]]:
    whole, joined = model(lines, model_type="unigram"), model(lines, model_type="bpe")
    padded = model(lines, model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    named = ["</s>", "<unk>", ">>fra<<", ">>deu<<", *pieces(whole)[3:], FOREIGN, "<pad>"]
    listed = ["<s>", "<pad>", "</s>", "<unk>", *pieces(joined)[:2:-1]]
    words, more = ({piece: one for one, piece in enumerate(each)} for each in (named, listed))
    spm = {"source.spm": whole, "target.spm": whole}
    return {
        "marian": ({**spm, "vocab.json": json.dumps(words).encode()}, {}),
        "m2m_100": (
            {"sentencepiece.bpe.model": joined, "vocab.json": json.dumps(more).encode()},
            {"tokenizer_class": "M2M100Tokenizer", "src_lang": "fr"},
        ),
        "mbart": (
            {"sentencepiece.bpe.model": whole},
            {"tokenizer_class": "MBart50Tokenizer", "src_lang": "fr_XX"},
        ),
        "pegasus": ({"spiece.model": padded}, {"tokenizer_class": "PegasusTokenizer"}),
    }


def asked(name: str, folder: Path) -> Any:
    """transformers' tokenizer of these files."""
    if name == "marian":
        spm = [str(folder / one) for one in ("source.spm", "target.spm", "vocab.json")]
        return transformers.MarianTokenizer(*spm)
    if name == "m2m_100":
        files = folder / "vocab.json", folder / "sentencepiece.bpe.model"
        return transformers.M2M100Tokenizer(*map(str, files), src_lang="fr")
    return transformers.AutoTokenizer.from_pretrained(folder)


def main() -> None:
    corpus = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    lines = [line for line in corpus.splitlines() if len(line) > 20]
    texts = [" ".join(line.split()) for line in lines[5 : 5 + CASES]]
    made: dict[str, Any] = {}
    for name, (files, config) in sources(lines).items():
        with tempfile.TemporaryDirectory() as folder:
            for file, data in files.items():
                (Path(folder) / file).write_bytes(data)
            (Path(folder) / "tokenizer_config.json").write_text(json.dumps(config))
            (Path(folder) / "config.json").write_text(json.dumps({"model_type": name}))
            tokenizer = asked(name, Path(folder))
            own = [*texts, *([f">>deu<< {texts[0]}", FOREIGN] if name == "marian" else [])]
            cases = [[text, tokenizer.encode(text)] for text in own]
        files.pop("target.spm", None)
        coded = {file: base64.b64encode(data).decode() for file, data in files.items()}
        made[name] = {"files": coded, "config": config, "cases": cases}
    FILE.write_text(json.dumps(made, ensure_ascii=True, indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
