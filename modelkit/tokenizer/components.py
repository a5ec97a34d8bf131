"""The parts a tokenizer.json may be made of: what language models use of the `tokenizers` library."""

MOST_COMPONENTS = 16
MOST_DEPTH = 8

KINDS: dict[str, frozenset[str]] = {
    "normalizer": frozenset(
        {
            "Sequence", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "StripAccents", "Strip", "Prepend",
            "Replace", "Precompiled", "ByteLevel", "BertNormalizer",
        }
    ),
    "pre_tokenizer": frozenset(
        {
            "Sequence", "Split", "ByteLevel", "Metaspace", "Whitespace", "WhitespaceSplit", "Punctuation",
            "Digits", "UnicodeScripts", "CharDelimiterSplit", "BertPreTokenizer", "FixedLength",
        }
    ),
    "post_processor": frozenset(
        {"Sequence", "TemplateProcessing", "ByteLevel", "BertProcessing", "RobertaProcessing"}
    ),
    "decoder": frozenset(
        {
            "Sequence", "ByteLevel", "ByteFallback", "Fuse", "Strip", "Replace", "Metaspace", "WordPiece",
            "BPEDecoder",
        }
    ),
}  # fmt: skip

SEQUENCES = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}

AFFIXES = ("sep", "cls")
