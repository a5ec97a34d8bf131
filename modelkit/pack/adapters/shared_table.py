"""The table of an encoder-decoder, which BART and T5 keep once: transformers' class has a module over it for
the encoder and one for the decoder, and PEFT trains each by itself. Here tokens are looked up in one table
(`Checkpoint.copies`), and so has to be what an adapter says of it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from modelkit.errors import UnsupportedSource
from modelkit.pack.adapters.shared_blocks import same
from modelkit.source.adapters.value import AdapterSource, OwnRows, Pair
from modelkit.source.tensor import TensorInfo
from runtime.loading.shapes import parameters
from runtime.models import Described
from runtime.quoting import shown
from runtime.tensors.checkpoint import TRUNK

_Said = TypeVar("_Said", Pair, TensorInfo, OwnRows)

_LOOKUPS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


def for_one_table(adapter: AdapterSource, described: Described) -> AdapterSource:
    """The adapter with what it says of each copy of a table said of the table. Raises UnsupportedSource where
    it does not say the same of all of them.
    """
    table, copies = described.checkpoint.copies
    if not table:
        return adapter
    running = {name.partition(".")[0] for name in parameters(described)}
    lookups = [one for one in _LOOKUPS if one in copies and one.partition(".")[0] in running]
    pairs = _settled({pair.names[0]: pair for pair in adapter.pairs}, adapter, table, lookups)
    rows = _settled({one.name: one for one in adapter.rows}, adapter, table, lookups)
    return replace(
        adapter,
        pairs=tuple(replace(pair, names=(name,)) for name, pair in pairs.items()),
        whole=_settled(adapter.whole, adapter, table, lookups),
        rows=tuple(replace(one, name=name) for name, one in rows.items()),
    )


def _settled(
    said: Mapping[str, _Said], adapter: AdapterSource, table: str, lookups: list[str]
) -> dict[str, _Said]:
    """By names of matrices."""
    own = [name for one in lookups for name in said if _is(name, one)]
    if not own:
        return dict(said)
    if len(own) < len(lookups) or not same(said[name] for name in own):
        how = "is changed alone" if len(own) == 1 else "are changed each otherwise"
        raise UnsupportedSource(
            f"{adapter.label}: encoder and decoder look tokens up in one table, and "
            f"{' and '.join(map(shown, own))} {how}, which is not computed here",
            hint="Train it without embed_tokens.",
        )
    # Nothing of transformers' looks up in the module that is called like the table itself.
    kept = {name: one for name, one in said.items() if name not in own and not _is(name, table)}
    return {**kept, table: said[own[0]]}


def _is(name: str, ending: str) -> bool:
    return f".{name}".endswith(f".{ending.removeprefix(TRUNK)}")
