"""A Tokenizer from the files of a model: tokenizer.json, and what tokenizer_config.json and its kin add.

Token ids agree with transformers 5, with four exceptions. A special token that is only named, and has no id
in tokenizer.json, gets none (transformers would give it the id after the last, which no embedding has). The
flags `add_bos_token` and `add_eos_token` count where the post-processor adds no token of its own;
transformers 5 drops them whenever there is a tokenizer.json, classes of older versions and llama.cpp do not.
And what cuts and joins a text is tokenizer.json's: named classes of transformers 5 (Llama's, GPT-2's) make
theirs anew, which splits digits and sets blanks behind special tokens otherwise than models were trained.
Last, special tokens in a text are known as such even where `split_special_tokens` asks for their letters: a
prompt is one text, with the marks that its chat template writes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelkit.errors import TokenizerError
from modelkit.tokenizer.building import built
from modelkit.tokenizer.check import LIMIT_BYTES, check_document, refused
from modelkit.tokenizer.native import guarded
from modelkit.tokenizer.overrides import with_overrides
from modelkit.tokenizer.read import parse_object, read_object, read_text
from modelkit.tokenizer.special import Specials, declared_tokens, read_specials
from modelkit.tokenizer.tokenizer import Tokenizer
from modelkit.tokenizer.vocabulary import merge_fault
from runtime.quoting import quoted

if TYPE_CHECKING:
    import tokenizers

CONFIG_BYTES = 10_000_000


def load_tokenizer(files: Mapping[str, Path]) -> Tokenizer:
    """The tokenizer of a model whose files are `files`: name in the model's folder -> where it lies.

    Reads `tokenizer.json` and, where there, `tokenizer_config.json`, `special_tokens_map.json` and
    `added_tokens.json`. Raises TokenizerError for anything missing, malformed or hostile.
    """
    if "tokenizer.json" not in files:
        raise _no_tokenizer(files)
    text = read_text(files["tokenizer.json"], "tokenizer.json", limit_bytes=LIMIT_BYTES)
    parsed = parse_object(text, "tokenizer.json")
    config = _companion(files, "tokenizer_config.json")
    document = with_overrides(check_document(parsed, "tokenizer.json"), config)
    specials = read_specials(config, _companion(files, "special_tokens_map.json"))
    native = _native(document, text if _as_checked(parsed, document) else None)
    _add_declared(native, config, _companion(files, "added_tokens.json"))
    _mark_special(native, specials)
    return Tokenizer(
        native,
        specials=specials,
        add_bos=config.get("add_bos_token") is True,
        add_eos=config.get("add_eos_token") is True,
        keeps_end=config.get("truncation_side") == "left",
        decoder=document["decoder"],
        vocab_size=1 + max(_largest_id(document["model"]["vocab"]), *native.get_added_tokens_decoder(), 0),
        cleans=cleans if isinstance(cleans := config.get("clean_up_tokenization_spaces"), bool) else None,
    )


def _largest_id(vocab: dict[str, int] | list[Any]) -> int:
    """Of a checked model; a list is in the order of the ids."""
    return max(vocab.values()) if isinstance(vocab, dict) else len(vocab) - 1


def _no_tokenizer(files: Mapping[str, Path]) -> TokenizerError:
    other = next((name for name in ("tokenizer.model", "tekken.json", "vocab.json") if name in files), None)
    found = f"; there is only {other}" if other else ""
    return TokenizerError(
        f"the model has no tokenizer.json{found}",
        hint="Write one with transformers: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR).",
    )


def _companion(files: Mapping[str, Path], name: str) -> dict[str, Any]:
    return read_object(files[name], name, limit_bytes=CONFIG_BYTES) if name in files else {}


def _as_checked(parsed: dict[str, Any], checked: dict[str, Any]) -> bool:
    """Does a file say just what was checked of it? Most do; writing it again takes as long as reading it."""
    return parsed.keys() <= checked.keys() and all(
        parsed.get(key) is value or parsed.get(key) == value for key, value in checked.items()
    )


def _native(document: dict[str, Any], text: str | None) -> "tokenizers.Tokenizer":
    """The library's tokenizer of a checked document, and proof that it uses the ids that were checked.

    text: the document as it was read; None where it is another one than was checked.
    """
    try:
        native = guarded("reading tokenizer.json", lambda: built(document, text))
    except TokenizerError as error:
        fault = merge_fault(document["model"]) if document["model"]["type"] == "BPE" else None
        if fault is None:
            raise
        raise refused("tokenizer.json", fault) from error
    for token in document["added_tokens"]:
        _expect_id(native, token["content"], token["id"])
    return native


def _expect_id(native: "tokenizers.Tokenizer", content: str, wanted: int) -> None:
    given = native.token_to_id(content)
    if given != wanted:
        raise TokenizerError(
            f"the added token {quoted(content)} should have id {wanted}, and the library gives it {given}",
            hint="The ids of added tokens must follow the vocabulary without a gap.",
        )


def _add_declared(
    native: "tokenizers.Tokenizer", config: Mapping[str, Any], added: Mapping[str, Any]
) -> None:
    """Add the tokens of the companion files that tokenizer.json lacks or describes otherwise."""
    import tokenizers

    known = native.get_added_tokens_decoder()
    for token in declared_tokens(config, added):
        wanted = tokenizers.AddedToken(token.content, **token.flags)
        present = known.get(token.id)
        if present is None or (token.flags and present != wanted):
            guarded("adding a token", lambda wanted=wanted: native.add_tokens([wanted]))
        _expect_id(native, token.content, token.id)


def _mark_special(native: "tokenizers.Tokenizer", specials: Specials) -> None:
    """Named tokens that are mere pieces of the vocabulary become whole, special tokens; so do those that are
    added and were not called special.
    """
    import tokenizers

    added = {token.content: token for token in native.get_added_tokens_decoder().values()}
    for text in specials:
        token = added.get(text)
        if token is not None:
            token.special, known = True, token.special
        else:
            token, known = tokenizers.AddedToken(text, special=True, normalized=False), False
        if not known and native.token_to_id(text) is not None:
            guarded("adding a token", lambda token=token: native.add_special_tokens([token]))
