"""Text <-> token ids, on the `tokenizers` library.

    load                       a Tokenizer from a model's files
    read, check, components, vocabulary    tokenizer.json, checked before the library sees it
    special, overrides         what tokenizer_config.json and its companions add
    building, native           the library's tokenizer of a checked file; its failures
    tokenizer, long_texts      text -> ids and back; texts that may be far too long
    stream, decoding, stop     ids -> text piece by piece; stop strings
    breakers                   texts that no repetition is followed across
    compare, fingerprint       do two tokenizers mean the same
    infill                     prompts for the middle of a text

Importing this package loads no native library.
"""

from modelkit.tokenizer.compare import other_ids, same_tokens
from modelkit.tokenizer.load import load_tokenizer
from modelkit.tokenizer.stop import StopStrings
from modelkit.tokenizer.stream import TextStream
from modelkit.tokenizer.tokenizer import Tokenizer

__all__ = ["StopStrings", "TextStream", "Tokenizer", "load_tokenizer", "other_ids", "same_tokens"]
