r"""The expressions by which models cut a text before merging, in the spelling of their own tokenizer.json.

Facts from the models' tokenizer.json files and from llama.cpp's llama-vocab.cpp (MIT, The ggml authors). Its
engine has no case folding, possessive repeats or intersections, so it spells some of these otherwise and
keeps the original in a comment. Each is a tuple: one expression cuts what the one before it left, and what
none matches stays as it is.
"""

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_THREE_FROM_RIGHT = r"\d{1,3}(?=(?:\d{3})*\b)"
_PUNCTUATED = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"""
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
) + _BLANKS


def _words(digits: str, *, start: str = _ENDINGS + "|") -> str:
    """Endings, words with one character before them, digits, other characters, blanks."""
    return rf"{start}{_BEFORE}\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BLANKS}"


def _cased(digits: str, *, endings: str = _ENDINGS + "?", upper: str = _UPPER, lower: str = _LOWER) -> str:
    """Words that begin anew where lower case turns into upper."""
    rest = rf"{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BLANKS}"
    return rf"{_BEFORE}{upper}*{lower}+{endings}|{_BEFORE}{upper}+{lower}*{endings}|{rest}"


GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",)
STARCODER = (r"\p{N}", *GPT2)
FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", *GPT2, r"[0-9][0-9][0-9]")
DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", *GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")
LLAMA3 = (_words(r"\p{N}{1,3}"),)
QWEN2 = (_words(r"\p{N}"),)
UFAKZEKA = (_words(r"\p{N}", start=""),)
MINICPM5 = (r"\p{N}{1,3}", _words(r"\p{N}+"))
LAGUNA = (r"[^\n]+|[\n]+", *QWEN2)
QWEN35 = (rf"{_ENDINGS}|{_BEFORE}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_BLANKS}",)
JAIS2 = (
    rf"{_ENDINGS}|{_BEFORE}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|"
    r"\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|"
    r"\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}",
)
SEED_CODER = (rf"{_ENDINGS}|{_BEFORE}\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_BLANKS}",)
BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|"
    r"\s*[\r\n]|\s+(?!\S)|\s+",
)
EXAONE_MOE = (
    rf"{_ENDINGS}|{_BEFORE}(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]?|"
    r"\s*[\r\n]|\s+(?!\S)|\s+",
)
TEKKEN = (_cased(r"\p{N}", endings=""),)
GPT4O = (_cased(r"\p{N}{1,3}"),)
# A combining mark belongs to both cases here, and a lone upper-case letter to none: as llama.cpp spells it.
GRANITE_EMBED = (
    _cased(r"\p{N}{1,3}", upper=r"(?:(?=[\p{L}\p{M}])[^a-z])", lower=r"(?:(?=[\p{L}\p{M}])[^A-Z])"),
)
TINY_AYA = (_THREE_FROM_RIGHT, *GPT4O)
YOUTU = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    _cased(r"\p{N}"),
)
_NOT_HAN = "&&[^\\p{Han}]]"
KIMI = (
    r"[\p{Han}]+|"
    + _cased(r"\p{N}{1,3}", upper=_UPPER[:-1] + _NOT_HAN, lower=_LOWER[:-1] + _NOT_HAN).replace(
        "[\\r\\n/]*", "[\\r\\n]*"
    ),
)
# Letters that have cases, as the first DeepSeek models list them.
_CASED_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370"
    "-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-"
    "\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-"
    "\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-"
    "\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4"
    "\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a"
    "-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-"
    "\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-"
    "\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-"
    "\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-"
    "\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK_LLM = (
    r"[\r\n]",
    r"\s?[" + _CASED_LETTERS + "]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    _DEEPSEEK_CJK,
    r"\p{N}+",
)
DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}")
DEEPSEEK3 = (r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", _PUNCTUATED)
SPARK = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    _PUNCTUATED.replace(r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+", r" ?[\p{P}\p{S}]+|[\r\n]"),
    r"\p{N}",
)
AFMOE = (
    # From the right in threes, and the rest in front.
    r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+",
    _PUNCTUATED,
)
BLOOM = (" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+",)
VIKING = (*BLOOM, r"\p{N}")
SUPERBPE = (r"\p{N}+", r"(?=(\d{3})+(?!\d))")
CHAMELEON = (
    r"<sentinel:[0-9]+>",
    r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    r"([\t\n]|    |  )",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
    *GPT2,
)
LINES = (r"[^\n]+|[\n]+",)
