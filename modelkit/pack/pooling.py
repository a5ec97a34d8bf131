"""How a model's hidden states become one vector for a text: what its files say, else the field's habit.

The files are sentence-transformers': modules.json lists what a text passes through, the config.json of its
pooling module says how tokens become one vector, Dense modules what that passes then (`dense`),
sentence_bert_config.json (or, as newer releases save it, tokenizer_config.json) where texts are cut,
config_sentence_transformers.json what stands before each of them. Without them a model that looks both ways
takes the mean, any other its last token. Whatever the files ask for and nothing here computes is a `problem`:
the model runs, and embeddings are refused in those words.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelkit.errors import MalformedFile, RequestError, SourceError
from modelkit.pack.dense import DenseFile, NotComputed, read_dense
from modelkit.source.strict_json import parse_json, read_json
from modelkit.source.tree import Files, is_own, open_regular
from runtime.models import Described
from runtime.quoting import quoted, shown
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.tokenizer import Tokenizer
    from runtime.embedding import Pool

_MODULES = "modules.json"
LIMITS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)
_TOKENIZER = "tokenizer_config.json"
_PROMPTS = "config_sentence_transformers.json"
_POOLING = "1_Pooling/config.json"
FILES = (_MODULES, _POOLING)
"""Who has one of these was made for embeddings."""
_LIMIT_BYTES = 1 << 16
_MOST_TOKENS = 2**31 - 1
_FLAGS: "Mapping[str, Pool]" = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_mean_sqrt_len_tokens": "root",
    "pooling_mode_weightedmean_tokens": "weighted",
}
_WORDS: "Mapping[str, Pool]" = {
    "cls": "first",
    "mean": "mean",
    "max": "max",
    "lasttoken": "last",
    "mean_sqrt_len_tokens": "root",
    "weightedmean": "weighted",
}
_SAID: "Mapping[Pool, str]" = {
    "first": "first token",
    "last": "last token",
    "mean": "mean of all tokens",
    "max": "greatest of all tokens",
    "weighted": "mean of all tokens counted by their places",
    "root": "sum of all tokens over the root of their number",
}


@dataclass(frozen=True, slots=True)
class Pooling:
    """How a text's hidden states become its vector."""

    pool: "Pool"
    origin: str
    """Who says so: a file's name, or ""."""
    most_tokens: int | None = None
    """Where texts are cut; None: where the context ends."""
    lower: bool = False
    """Texts are put in small letters first."""
    prefix: str = ""
    """What stands before every text, unless another of the prompts is asked for."""
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    """What may stand before a text, by name."""
    alone: bool = False
    """Are prompts read, and left out of what is pooled?"""
    dense: tuple[DenseFile, ...] = ()
    """What the vector passes through then, one after the other."""
    problem: str | None = None
    """Why there are no embeddings; a clause about the model."""

    def limit(self, context: int) -> int:
        """Tokens of a text that are read, by a model that follows so many."""
        return context if self.most_tokens is None else min(context, self.most_tokens)

    def size(self, hidden: int) -> int:
        """Elements of a vector; hidden: those of a hidden state."""
        return self.dense[-1].outputs if self.dense else hidden

    @property
    def dense_bytes(self) -> int:
        """What that takes in memory."""
        return sum(one.nbytes for one in self.dense)

    @property
    def description(self) -> str:
        """In words, for the user."""
        if self.problem is not None:
            return f"none: {self.problem}"
        said = f"{_SAID[self.pool]}, {f'from {self.origin}' if self.origin else 'by default'}"
        if self.dense:
            passed = ", ".join(
                f"{one.outputs}{'' if one.activation == 'identity' else f' by {one.activation}'}"
                for one in self.dense
            )
            said += f"; dense to {passed}"
        said += f"; texts begin with {shown(self.prefix)}" if self.prefix else ""
        said += f"; prompts: {', '.join(map(shown, self.prompts))}" if self.prompts else ""
        return f"{said}, which are left out of it" if self.alone and self.prompts else said

    def before(self, prompt: str | None) -> str:
        """What stands before each text. prompt: the name of one of the prompts; None: as the authors have
        it. Raises RequestError.
        """
        if prompt is None:
            return self.prefix
        if prompt not in self.prompts:
            known = f"one of {', '.join(map(shown, self.prompts))}" if self.prompts else "none"
            more = "" if self.prompts else ": this model's files give no prompts"
            raise RequestError(
                f"prompt_name is {shown(prompt)}, expected {known}{more}",
                hint="Leave it out, or write the prompt into the texts.",
            )
        return self.prompts[prompt]

    def plain(self, text: str) -> str:
        """As it is read."""
        return text.lower() if self.lower else text

    def skipped(self, before: str, tokenizer: "Tokenizer") -> int:
        """How many tokens are left out of what is pooled where that stands before a text: its own, with the
        frame in front, as sentence-transformers counts them.
        """
        if not before or not self.alone:
            return 0
        ids = tokenizer.encode(self.plain(before), add_special=True)
        ending = {tokenizer.piece_to_id(one) for one in tokenizer.specials}
        return len(ids) - len(ending.intersection(ids[-1:]))


def context_tokens(described: Described, pooling: Pooling) -> int:
    """The most tokens that a model follows: of one that writes no text, those of a text that it reads."""
    most = described.context_length
    return most if described.writes else pooling.limit(most)


def read_pooling(files: Files, described: Described) -> Pooling:
    """What a model's files say. described: the model, for what they leave open."""
    pooling = Pooling("mean" if described.looks_ahead else "last", "")
    if described.start_id is not None:
        return replace(
            pooling, problem="an encoder reads its prompts, and what that makes is not pooled here"
        )
    try:
        name, folders = _modules_behind(files)
        pooling = replace(pooling, dense=_dense(files, folders, described.hidden_size))
        if name is not None:
            pooling = replace(
                pooling, pool=_pool(read_json(files[name], limit=_LIMIT_BYTES), name), origin=name
            )
        return _prompted(_limited(pooling, files), files, name)
    except (SourceError, NotComputed) as fault:
        said = fault.message if isinstance(fault, SourceError) else str(fault)
        return replace(pooling, dense=(), problem=said)


def _modules_behind(files: Files) -> tuple[str | None, list[str]]:
    """(the file that says how to pool, None where no file has a say; the folders of Dense modules)."""
    if _MODULES not in files:
        return (_POOLING if _POOLING in files else None), []
    found, dense, normed = None, list[str](), False
    for kind, path in _modules(files[_MODULES]):
        if kind == "Pooling" and found is None:
            found = f"{path}/config.json"
            if not is_own(found) or found not in files:
                raise NotComputed(f"{_MODULES} names {shown(found)}, which is not there")
        elif kind == "Dense":
            if found is None or normed:
                raise NotComputed(
                    f"{_MODULES} has {shown(path)} elsewhere than between pooling and normalizing, where it "
                    "is computed"
                )
            dense.append(path)
        elif kind not in ("Transformer", "Normalize"):
            raise NotComputed(
                f"{_MODULES} asks for a module of the kind {shown(kind)}, which is not run here"
            )
        normed |= kind == "Normalize"
    return found, dense


def _dense(files: Files, folders: list[str], size: int) -> tuple[DenseFile, ...]:
    """size: elements of the vector that enters."""
    found: list[DenseFile] = []
    for folder in folders:
        one = read_dense(files, folder)
        if one.inputs != size:
            raise NotComputed(f"{folder}/config.json: in_features is {one.inputs}, and {size} elements enter")
        found.append(one)
        size = one.outputs
    return tuple(found)


def _modules(file: Path) -> list[tuple[str, str]]:
    """(last word of its class, its folder) of each module, in order. Their code is never run."""
    with open_regular(file, _MODULES) as opened:
        data = opened.read(_LIMIT_BYTES + 1)
    listed: Any = parse_json(data, _MODULES) if len(data) <= _LIMIT_BYTES else None
    if not isinstance(listed, list) or not all(_is_module(one) for one in listed):
        raise MalformedFile(f"{_MODULES} is not a list of modules, each with a type and a path")
    return [(one["type"].rpartition(".")[2], one["path"]) for one in listed]


def _is_module(one: object) -> bool:
    return isinstance(one, dict) and all(isinstance(one.get(key), str) for key in ("type", "path"))


def _pool(config: Mapping[str, Any], name: str) -> "Pool":
    """Older files have a flag for each way, newer ones a word."""
    word = config.get("pooling_mode")
    if isinstance(word, str) and word in _WORDS:
        return _WORDS[word]
    asked = [key for key in config if key.startswith("pooling_mode_") and config[key] is not False]
    pool = _FLAGS.get(asked[0]) if len(asked) == 1 and config[asked[0]] is True else None
    if word is not None or pool is None:
        ways = quoted(word) if word is not None else ", ".join(map(shown, asked)) or "nothing"
        raise NotComputed(f"{name} asks for {ways}; one of {', '.join(_WORDS)} can be computed")
    return pool


def _limited(pooling: Pooling, files: Files) -> Pooling:
    """With where texts are cut, and whether in small letters."""
    name = next((one for one in LIMITS if one in files), None)
    config = read_json(files[name], limit=_LIMIT_BYTES) if name is not None else {}
    most, lower = config.get("max_seq_length"), config.get("do_lower_case", False)
    if most is not None and (type(most) is not int or not 0 < most <= _MOST_TOKENS):
        raise MalformedFile(f"{name}: max_seq_length is {quoted(most)}, expected a number of tokens")
    if type(lower) is not bool:
        raise MalformedFile(f"{name}: do_lower_case is {quoted(lower)}, expected true or false")
    return replace(pooling, most_tokens=most or _of_tokenizer(files), lower=lower)


def _of_tokenizer(files: Files) -> int | None:
    """Where a model made for embeddings has texts cut by what is saved with its tokenizer: newer releases of
    sentence-transformers say it there alone. Some 10^30 tokens stand for no end.
    """
    if _MODULES not in files or _TOKENIZER not in files:
        return None
    most = read_json(files[_TOKENIZER]).get("model_max_length")
    return most if type(most) is int and 0 < most <= _MOST_TOKENS else None


def _prompted(pooling: Pooling, files: Files, pooled: str | None) -> Pooling:
    """With what its authors put before texts: before every one, and by name where it is asked for. pooled:
    the file that says how to pool.
    """
    config = read_json(files[_PROMPTS], limit=_LIMIT_BYTES) if _PROMPTS in files else {}
    name, prompts = config.get("default_prompt_name"), config.get("prompts")
    prompts = {} if prompts is None else prompts
    if not isinstance(prompts, dict) or not all(isinstance(one, str) for one in prompts.values()):
        raise MalformedFile(f"{_PROMPTS}: prompts is not an object of texts")
    prefix = "" if name is None else prompts.get(name) if isinstance(name, str) else None
    if prefix is None:
        raise MalformedFile(f"{_PROMPTS}: default_prompt_name is {quoted(name)}, which no prompt has")
    own = {} if pooled is None else read_json(files[pooled], limit=_LIMIT_BYTES)
    return replace(pooling, prefix=prefix, prompts=prompts, alone=not own.get("include_prompt", True))
