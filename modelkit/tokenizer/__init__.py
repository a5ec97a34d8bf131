"""Text <-> token ids, on the `tokenizers` library.

`check` refuses a hostile tokenizer.json before the library sees it, `load` makes a Tokenizer, `stream` turns
ids into text piece by piece and finds stop strings. Importing this package loads no native library.
"""

from modelkit.tokenizer.compare import same_tokens
from modelkit.tokenizer.load import load_tokenizer
from modelkit.tokenizer.stop import StopStrings
from modelkit.tokenizer.stream import TextStream
from modelkit.tokenizer.tokenizer import Tokenizer

__all__ = ["StopStrings", "TextStream", "Tokenizer", "load_tokenizer", "same_tokens"]
