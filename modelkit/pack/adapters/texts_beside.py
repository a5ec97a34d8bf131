"""What lies beside an adapter and changes texts: a chat template, tokens, what ends a text.

Trainers save theirs with the adapter. A package has its model's, so where they differ, that is told.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modelkit.chat.find import find_template
from modelkit.errors import ModelkitError
from modelkit.source.companion_files import TOKENIZER
from modelkit.source.tree import Files
from modelkit.tokenizer import load_tokenizer, same_tokens
from runtime.quoting import quoted

if TYPE_CHECKING:
    from modelkit.pack.adapters.package_adapters import Carried
    from modelkit.pack.model_setup import ModelSetup


def texts_beside(adapters: "tuple[Carried, ...]", ready: "ModelSetup", *, chats: bool) -> Iterator[str]:
    """Sentences for the user on those that ADAPTER lines name. chats: is the model's own template the one
    that counts, so that another matters?
    """
    for one in adapters:
        files = one.placement.source.beside if one.placement is not None else {}
        try:
            said = [*(_template(files, ready) if chats else ()), *_tokens(files, ready)]
        except ModelkitError as error:
            said = [f"what lies beside it is not used, and cannot be read: {error.message}"]
        yield from (f"adapter {one.name}: {sentence}" for sentence in said)


def _template(files: Files, ready: "ModelSetup") -> Iterator[str]:
    own = find_template(files)
    if own is not None and (ready.template is None or own.strip() != ready.template.source.strip()):
        yield "the chat template beside it is not the model's, and is not used; TEMPLATE takes its text"


def _tokens(files: Files, ready: "ModelSetup") -> Iterator[str]:
    if TOKENIZER not in files:
        return
    own = load_tokenizer(files)
    difference = same_tokens(ready.tokenizer, own)
    if difference is not None:
        yield f"the tokenizer beside it is not the model's, and is not used: {difference}"
    end, ends = own.specials.eos, ready.stop_ids
    said = end in (ready.parameters.resolved().stop or ())
    if end is not None and not said and ends and ready.tokenizer.piece_to_id(end) not in ends:
        yield (
            f"the tokenizer beside it ends texts with {quoted(end)}, which ends no answer here; "
            "PARAMETER stop takes it"
        )
