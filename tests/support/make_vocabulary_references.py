"""Ids of texts by the libraries that vocabularies come from (run by hand, with the four of them).

    python -m tests.support.make_vocabulary_references

Small vocabularies are made of this project's own documents: ranks of bytes for tiktoken, of which each
family's code makes an Encoding (expressions and special tokens stand here as they do there), and models of
SentencePiece of several kinds.
"""

import base64
import io
import json
import random
import tempfile
import unicodedata
from itertools import pairwise
from pathlib import Path
from typing import Any

import sentencepiece
import tiktoken
import transformers
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests" / "data" / "vocabularies.json"
MERGES = 300
QWEN = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"""
    r"""\s*[\r\n]+|\s+(?!\S)|\s+"""
)
TEKKEN = (
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"""
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"""
    r""" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
ROLES = (("system", "Be brief."), ("user", "Hi"), ("user", "More"))
SPECIAL = [token["token_str"] for token in Tekkenizer.DEPRECATED_SPECIAL_TOKENS]
KIMI = "|".join(
    [
        r"""[\p{Han}]+""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"""
        r"""[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"""
        r"""[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ]
)
EXTRAS = [f"<|extra_{i}|>" for i in range(205)]
DECLARED = {256 + MERGES: "[BOS]", 257 + MERGES: "[EOS]", 258 + MERGES: "<|im_end|>"}
LLAMA = {256 + MERGES + i: f"<|special_{i}|>" for i in range(256)}
POOLS = (
    "abcdefgh ", "aaa ", "  \n\t", "0123456789", "的一是在不了", "éèàüöß", "'sS'tT'", "=-*/#_.,;", "한국어",
    "ไทย", "हिन्दी", "😀👍🏽", "العربية", "\u00a0\u3000\u200b\u0085\r", "ЯЖфыва", "ǅʰⁿ²½Ⅷ", "e\u0301",
    "the self.",
)  # fmt: skip


def texts(special: list[str], count: int = 40) -> list[str]:
    rng = random.Random(7)
    found: list[str] = []
    for _ in range(count):
        pool = "".join(rng.sample(POOLS, rng.randint(1, 4)))
        text = "".join(
            rng.choice(pool) * (rng.randint(2, 9) if rng.random() < 0.2 else 1)
            for _ in range(rng.randint(1, 24))
        )
        found.append(text + rng.choice(["", rng.choice(special) + "a b"] if special else [""]))
    return [*found, "Is 12345 it?  We'll see.\n\n  Yes", "Hello world", ""]


def ranks(corpus: str) -> dict[bytes, int]:
    """256 bytes, and what is joined most often."""
    found = {bytes([byte]): byte for byte in range(256)}
    parts = [[bytes([byte]) for byte in word.encode()] for word in corpus.split()]
    while len(found) < 256 + MERGES:
        pairs: dict[tuple[bytes, bytes], int] = {}
        for part in parts:
            for pair in pairwise(part):
                pairs[pair] = pairs.get(pair, 0) + 1
        left, right = max(pairs, key=lambda pair: (pairs[pair], pair))
        found[left + right] = len(found)
        for part in parts:
            at = 0
            while at < len(part) - 1:
                if (part[at], part[at + 1]) == (left, right):
                    part[at : at + 2] = [left + right]
                at += 1
    return found


def tiktoken_cases(mergeable: dict[bytes, int]) -> dict[str, Any]:
    first = len(mergeable)
    kimi = {DECLARED.get(i, f"<|reserved_token_{i}|>"): i for i in range(first, first + 256)}
    qwen = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *EXTRAS]
    hunyuan = ["<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>", *EXTRAS]
    families = {
        "qwen.tiktoken": (QWEN, {text: first + i for i, text in enumerate(qwen)}, True),
        "hy.tiktoken": (QWEN, {text: first + i for i, text in enumerate(hunyuan)}, True),
        "tiktoken.model": (KIMI, kimi, False),
        "tokenizer.model": (QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|"), {v: k for k, v in LLAMA.items()}, False),
    }
    made: dict[str, Any] = {}
    for name, (pattern, special, nfc) in families.items():
        encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=mergeable, special_tokens=special)
        made[name] = [
            [
                text,
                encoding.encode(unicodedata.normalize("NFC", text) if nfc else text, allowed_special="all"),
            ]
            for text in texts([*list(special)[:4], list(special)[-1]])
        ]
    return made


def tekken_cases(mergeable: dict[bytes, int]) -> dict[str, Any]:
    """Files of two versions, and of each the ids of texts with what begins them. In a text it looks for no
    special token.
    """
    made: dict[str, Any] = {}
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for token, rank in mergeable.items()
    ]
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[THINK]"]
    named = [{"rank": rank, "token_str": name, "is_control": True} for rank, name in enumerate(names)]
    for version, more in (("v3", {}), ("v11", {"special_tokens": named})):
        file = {
            "config": {
                "pattern": TEKKEN,
                "num_vocab_tokens": len(vocab),
                "default_vocab_size": 24 + len(vocab) - 20,  # the last twenty are not used
                "default_num_special_tokens": 24,
                "version": version,
            },
            "vocab": vocab,
            **more,
        }
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tekken.json"
            path.write_text(json.dumps(file), encoding="utf-8")
            tokenizer = Tekkenizer.from_file(path)
        cases = [[text, tokenizer.encode(text, bos=True, eos=False)] for text in texts([])]
        pieces = [tokenizer.id_to_piece(one) for one in range(24)]
        made[version] = {"config": file["config"], **more, "cases": cases, "special": pieces}
    return made


def conversations() -> dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]] | None]]:
    """Messages and tools."""
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tools = [
        {"type": "function", "function": {"name": "f", "description": "It does f", "parameters": parameters}}
    ]
    system, user, more = ({"role": role, "content": text} for role, text in ROLES)
    answer = {"role": "assistant", "content": "Hello"}

    def call(text: str, *ids: str) -> dict[str, Any]:
        function = {"name": "f", "arguments": '{"a": "\u00e9\\"<"}'}
        calls = [{"id": one, "type": "function", "function": function} for one in ids]
        return {"role": "assistant", "content": text, "tool_calls": calls}

    def result(one: str) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": one, "name": "f", "content": '{"x": 2}'}

    first, second = "abcdefgh1", "abcdefgh2"
    return {
        "user": ([user], None),
        "system": ([system, user, answer, more], None),
        "twice": ([user, more], None),
        "tools": ([system, user, answer, more], tools),
        "call": ([user, call("", first), result(first)], tools),
        "calls": (
            [system, user, call("Let me see", first, second), result(first), result(second), answer, more],
            tools,
        ),
    }


def tekken_chats() -> dict[str, dict[str, str]]:
    """Of each version the prompts of conversations."""
    marks = [*SPECIAL, *(f"[{one}]" for one in ("CALL_ID", "ARGS", "THINK", "/THINK"))]
    special = [{"rank": rank, "token_str": mark, "is_control": True} for rank, mark in enumerate(marks)]
    vocab = [
        {"rank": byte, "token_bytes": base64.b64encode(bytes([byte])).decode(), "token_str": None}
        for byte in range(256)
    ]
    made: dict[str, dict[str, str]] = {}
    for version in ("v7", "v11", "v13"):
        config = {
            "pattern": TEKKEN, "num_vocab_tokens": 256, "default_vocab_size": 286,
            "default_num_special_tokens": 30, "version": version,
        }  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tekken.json"
            path.write_text(json.dumps({"config": config, "vocab": vocab, "special_tokens": special}))
            tokenizer = MistralTokenizer.from_file(str(path))
        made[version] = {
            name: tokenizer.encode_chat_completion(ChatCompletionRequest(messages=said, tools=tools)).text
            for name, (said, tools) in conversations().items()
        }
    return made


def sentencepiece_cases(lines: list[str]) -> dict[str, Any]:
    plain = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    kinds: dict[str, dict[str, Any]] = {
        "llama": {"model_type": "bpe", "byte_fallback": True, **plain},
        "fewer blanks": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity"},
        "no blank first": {"model_type": "bpe", "byte_fallback": True, "add_dummy_prefix": False, **plain},
        "user defined": {
            "model_type": "bpe", "byte_fallback": True, "user_defined_symbols": ["<sep>", "##", "ab"],
            **plain,
        },
        "unknown": {"model_type": "bpe", "byte_fallback": False, **plain},
        "unigram": {"model_type": "unigram", "byte_fallback": True, **plain},
        "t5": {
            "model_type": "unigram", "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1,
            "normalization_rule_name": "identity",
        },
    }  # fmt: skip
    made: dict[str, Any] = {}
    for name, options in kinds.items():
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=out, vocab_size=420, character_coverage=0.98,
            hard_vocab_limit=False, minloglevel=5, max_sentence_length=20_000, num_threads=1, **options,
        )  # fmt: skip
        processor = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
        user = ["<sep>", "##"] if "user_defined_symbols" in options else []
        # Sums of 32 bits choose otherwise than those of 64 where two ways are as good.
        chosen = texts(user) if options["model_type"] == "bpe" else lines[5:17]
        made[name] = {
            "model": base64.b64encode(out.getvalue()).decode(),
            "cases": [[text, processor.encode(text)] for text in chosen],
        }
    return made


def merges_cases(mergeable: dict[bytes, int]) -> dict[str, Any]:
    """By transformers, which has its own vocabularies of bytes."""
    letters = bytes_to_unicode()
    spelled = {"".join(letters[byte] for byte in token): rank for token, rank in mergeable.items()}
    lines = ["#version: 0.2"]
    for token in list(spelled)[256:]:
        cuts = [(token[:at], token[at:]) for at in range(1, len(token))]
        lines += [" ".join(pair) for pair in cuts if pair[0] in spelled and pair[1] in spelled][:1]
    vocab = {**spelled, "<|end|>": len(spelled)}
    more = {str(len(vocab)): {"content": "<|im_end|>", "special": True}}
    made: dict[str, Any] = {"vocab": vocab, "merges": "\n".join(lines) + "\n", "added": more, "cases": {}}
    for class_ in ("GPT2Tokenizer", "Qwen2Tokenizer"):
        config = {"tokenizer_class": class_, "eos_token": "<|end|>", "added_tokens_decoder": more}
        files = {"vocab.json": json.dumps(vocab), "merges.txt": made["merges"]}
        made["cases"][class_] = _by_transformers(files, config, texts(["<|end|>", "<|im_end|>"]))
    return made


def words_cases(lines: list[str]) -> dict[str, Any]:
    words = sorted({word for line in lines for word in line.split() if word.isalpha()})[:150]
    signs = sorted({char for text in texts([]) for char in text if not char.isspace()})
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *signs]
    vocab = [
        *dict.fromkeys([*vocab, *(f"##{word[-3:]}" for word in words), *(f"##{sign}" for sign in signs)])
    ]
    file = "\n".join(vocab) + "\n"
    chosen = [*texts(["[MASK]"], 30), *lines[:10]]
    cases = [
        [
            lower,
            _by_transformers(
                {"vocab.txt": file}, {"tokenizer_class": "BertTokenizer", "do_lower_case": lower}, chosen
            ),
        ]
        for lower in (True, False)
    ]
    return {"vocab": file, "cases": cases}


def _by_transformers(files: dict[str, str], config: dict[str, Any], chosen: list[str]) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**files, "tokenizer_config.json": json.dumps(config)}.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        return [[text, tokenizer.encode(text)] for text in chosen]


def main() -> None:
    corpus = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    lines = [line for line in corpus.splitlines() if len(line) > 20]
    mergeable = ranks(corpus)
    file = b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in mergeable.items()).decode()
    made = {
        "ranks": file,
        "names": {"tiktoken.model": DECLARED, "tokenizer.model": LLAMA},
        "tiktoken": tiktoken_cases(mergeable),
        "tekken": tekken_cases(mergeable),
        "chats": {"conversations": conversations(), "tekken": tekken_chats()},
        "sentencepiece": sentencepiece_cases(lines),
        "merges": merges_cases(mergeable),
        "words": words_cases(lines),
    }
    FILE.write_text(json.dumps(made, ensure_ascii=True, indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
