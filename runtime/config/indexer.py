"""The config fields of indexers, and of which layer's indexer chooses for which."""

from collections.abc import Sequence

from runtime.config.fields import Fields
from runtime.nn.attention.indexer import IndexShape

_LETTERS = {"F": "full", "S": "shared"}


def read_index(fields: Fields, layers: int, position: int, *, heads: int) -> IndexShape:
    """position: the size of the part that is rotated. heads: where a file does not say."""
    fields.words("layer_types", layers, ("indexed_attention",))
    return IndexShape(
        heads=fields.count("index_n_heads", heads, high=4096),
        size=fields.count("index_head_dim", 128, low=position, high=4096),
        chosen=fields.count("index_topk", 2048),
    )


def read_choosers(fields: Fields, layers: int) -> tuple[int, ...]:
    """Of each layer: the one whose indexer chooses for it."""
    return choosers_of(fields, *indexer_kinds(fields, layers))


def indexer_kinds(fields: Fields, layers: int) -> tuple[str, Sequence[str]]:
    """full or shared, of each layer: by `indexer_types`, by a pattern such as FSSF, or by how often a layer
    has its own; with the field that says it.
    """
    kinds = fields.words("indexer_types", layers, ("full", "shared"))
    name, pattern = "indexer_types", fields.raw.get("index_topk_pattern")
    if kinds is None and pattern is not None:
        name = "index_topk_pattern"
        listed = [_LETTERS.get(one, one) for one in pattern] if isinstance(pattern, str) else pattern
        kinds = Fields({name: listed}).words(name, layers, ("full", "shared"))
    if kinds is None:
        name = "index_topk_freq"
        every = max(fields.count(name, 1, low=0), 1)
        behind = fields.count("index_skip_topk_offset", 2, low=0) - 1
        kinds = ["shared" if max(i - behind, 0) % every else "full" for i in range(layers)]
    return name, kinds


def choosers_of(fields: Fields, name: str, kinds: Sequence[str]) -> tuple[int, ...]:
    """Of each layer: the last one up to it that is full. name: of the field that says so."""
    if kinds[0] != "full":
        fields.refuse(name, "a first layer with an indexer of its own")
    own = [i for i, kind in enumerate(kinds) if kind == "full"]
    return tuple(max(k for k in own if k <= i) for i in range(len(kinds)))
