"""A stored output head beside a config that ties it to the embedding: a copy to leave out, or the real one?

Trainers that save both usually save the same numbers twice; a fine-tune that trained them apart is another
model when its head is thrown away. So where a file has both they are compared, byte by byte and no further
than the first difference; transformers 5 decides the same way. Equal ones cost the reading of two tables.

Of a file that has the head alone, it is the embedding: `safetensors.torch.save_model` keeps the first of the
names that one tensor has, and `lm_head` is before `model`. transformers 5 takes it so, too.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from modelkit.errors import PlanError
from modelkit.pack.planning.families import checkpoint_of
from modelkit.pack.planning.heads import in_head
from modelkit.pack.planning.omissions import masks
from modelkit.pack.pooling import FILES as POOLING_FILES
from modelkit.pack.sources import Source
from modelkit.pack.writing.reader import Reader, same_data
from modelkit.source.inventory import Inventory
from modelkit.source.prequantized import FloatWeights
from modelkit.source.tensor import TensorInfo
from runtime.config.spellings import ALIASES
from runtime.config.text import levels
from runtime.tensors.towers import unwrapped

HEADS = ("lm_head.weight", "embed_out.weight", "lm_head.out_proj.weight")
"""What checkpoints call an output head, behind the names of wrappers."""
OTHER_HEADS = ("head.weight", "decoder.weight")
"""RWKV's and ModernBERT's. Elsewhere parts of a network may be called so."""
_TABLES = (
    *("embed_tokens.weight", ".embeddings.weight", "wte.weight", "embed_in.weight"),
    *("word_embeddings.weight", "backbone.embedding.weight"),  # Falcon and BLOOM, and Mamba of old
)
_TABLE_NAMES = (
    *("wte.weight", "embed_in.weight", "word_embeddings.weight", "embeddings.weight", "embedding.weight"),
    "embed_tokens.weight",  # at the end: families with another word for it take this one too
)
"""What tables are called in their trunk."""
_ANSWERS = ("shared.weight", "decoder.embed_tokens.weight")
_BESIDE = ("scales", "biases", "factor")
_KEY = "tie_word_embeddings"
_CONFIG = "config.json"


def settle_head(source: Source) -> tuple[Source, str | None]:
    """The source, and the tensor in it that only repeats the embedding, if one does.

    One whose head differs comes back with a config that says so, and a note. Raises PlanError where the
    architecture cannot have a head of its own.
    """
    inventory = source.inventory
    pair = _pair(inventory) if _tied(inventory.config) else None
    if pair is None:
        return source, None
    head, table = pair
    if source.hollow:
        note = f"{head.name} may be a copy of {table.name}, and is taken for one; create compares the two"
        return replace(source, notes=(*source.notes, note)), head.name
    if _equal(inventory, head, table):
        return source, head.name
    note = f"{head.name} differs from {table.name}: it is used, though config.json ties the two ({_KEY})"
    return replace(source, inventory=_untied(inventory, head, table), notes=(*source.notes, note)), None


def is_head(name: str) -> bool:
    """Is it what a checkpoint calls its output head, in a wrapper or not?"""
    return unwrapped(name) in (*HEADS, *OTHER_HEADS)


def settle_lone_head(source: Source) -> Source:
    """Where a file has the head and not the embedding to which its config ties it: a source that has it under
    the embedding's name. The same in any other case.
    """
    inventory = source.inventory
    if not isinstance(source.kind, FloatWeights) or not _tied(inventory.config):
        return source
    in_draft_head = in_head(inventory.config)
    heads = [name for name in inventory.tensors if name.endswith(HEADS) and not in_draft_head(name)]
    if len(heads) != 1 or any(name.endswith((*_TABLES, *_ANSWERS)) for name in inventory.tensors):
        return source
    for table in _tables_of(inventory):
        renamed = _renamed(inventory, heads[0], table)
        if _fits(renamed):
            note = f"{heads[0]} is the embedding, to which config.json ties it: it is called {table} here"
            return replace(source, inventory=renamed, notes=(*source.notes, note))
    return source


def _tables_of(inventory: Inventory) -> Iterator[str]:
    """What its embedding may be called, the likeliest first: in whatever has the most layers."""
    layered = (re.match(r"(.*?)[^.]+\.\d+\.", name) for name in inventory.tensors)
    trunks = Counter(found[1] for found in layered if found)
    return (trunk + name for trunk, _ in trunks.most_common() for name in _TABLE_NAMES)


def _renamed(inventory: Inventory, before: str, after: str) -> Inventory:
    tensors = dict(inventory.tensors)
    tensors[after] = replace(tensors.pop(before), name=after)
    return replace(inventory, tensors=dict(sorted(tensors.items())))


def _fits(inventory: Inventory) -> bool:
    from runtime.errors import RuntimeFault
    from runtime.loading.forecast import check_weights

    spare = masks(inventory)
    stored = {
        name: ("F32" if one.dtype == "F64" else one.dtype, one.shape)
        for name, one in inventory.tensors.items()
        if name not in spare
    }
    try:
        return not check_weights(inventory.config, stored)
    except RuntimeFault:
        return False


def settle_headless(source: Source) -> Source:
    """Where a head is missing that the config does not tie, and sentence-transformers' files say what the
    model is for: a source whose config names the class without one. The same in any other case.
    """
    from runtime.models.registry.names import HEADLESS, architecture_name

    inventory = source.inventory
    bare = HEADLESS.get(architecture_name(inventory.config))
    made_for_it = any(name in inventory.files for name in POOLING_FILES)
    if bare is None or not made_for_it or _tied(inventory.config) or not _runs(inventory.config):
        return source
    if any(name.endswith(HEADS) for name in inventory.tensors):
        return source
    config: dict[str, Any] = {**deepcopy(inventory.config), "architectures": [bare]}
    files = {name: path for name, path in inventory.files.items() if name != _CONFIG}
    note = "it has no output head: it makes embeddings and writes no text"
    return replace(
        source, inventory=replace(inventory, config=config, files=files), notes=(*source.notes, note)
    )


def _tied(config: Mapping[str, Any]) -> bool:
    """Does the architecture compute logits with the embedding? An unknown one is refused elsewhere."""
    from runtime.errors import UnsupportedModel
    from runtime.models import describe

    try:
        described = describe(config)
        return described.writes and getattr(described.config, "tied", False) is True
    except UnsupportedModel:
        return False


def table_of_head(inventory: Inventory) -> TensorInfo | None:
    """The embedding that is the head as well; None where the config does not tie them, or its name is not
    known.
    """
    tables = _tables(_trunk(inventory)) if _tied(inventory.config) else []
    return tables[0] if len(tables) == 1 else None


def _pair(inventory: Inventory) -> tuple[TensorInfo, TensorInfo] | None:
    """Head and embedding, as floats or as MLX packs them."""
    own = _trunk(inventory)
    heads, tables = [t for t in own if t.name.endswith(HEADS)], _tables(own)
    return (heads[0], tables[0]) if len(heads) == 1 and len(tables) == 1 else None


def _trunk(inventory: Inventory) -> list[TensorInfo]:
    """What is not a draft head's."""
    own = [t for t in inventory.tensors.values() if t.dtype in ("F64", "F32", "F16", "BF16", "U32", "U8")]
    in_draft_head = in_head(inventory.config)
    return [t for t in own if not in_draft_head(t.name)]


def _tables(own: list[TensorInfo]) -> list[TensorInfo]:
    # Files with two stacks have tables for both; the answer's is the one that a head repeats.
    ends = next((one for one in _ANSWERS if any(t.name.endswith(one) for t in own)), _TABLES)
    return [t for t in own if t.name.endswith(ends)]


def _equal(inventory: Inventory, head: TensorInfo, table: TensorInfo) -> bool:
    """With what is stored beside packed ones."""
    modules = [one.name.removesuffix(".weight") for one in (head, table)]
    parts = [[inventory.tensors.get(f"{module}.{leaf}") for leaf in _BESIDE] for module in modules]
    both = list(zip((head, *parts[0]), (table, *parts[1]), strict=True))
    if any((one is None) != (other is None) for one, other in both):
        return False
    with Reader(inventory.weights) as reader:
        return all(same_data(reader, one, reader, other) for one, other in both if one and other)


def _untied(inventory: Inventory, head: TensorInfo, table: TensorInfo) -> Inventory:
    found = untied(inventory)
    if found is None:
        raise PlanError(
            f"{inventory.origin}: {head.name} differs from {table.name}, and config.json ties them, as this "
            "architecture must",
            hint=f"Leave {head.name} out of the checkpoint if it is not meant.",
        )
    return found


def untied(inventory: Inventory) -> Inventory | None:
    """One whose config.json says that the head is a matrix of its own; None where it cannot be."""
    config: dict[str, Any] = {**deepcopy(inventory.config), _KEY: False}
    for _, level in levels(config)[1:]:
        level.update({_KEY: False} if _KEY in level else {})
    config = {**dict(checkpoint_of(inventory.config).tied_fields), **config}
    stored = ALIASES.get(str(config.get("model_type")), {}).get(_KEY)
    if stored is not None:
        config[stored] = False
    if _tied(config) or not _runs(config):
        return None
    files = {name: path for name, path in inventory.files.items() if name != _CONFIG}
    return replace(inventory, config=config, files=files)


def _runs(config: Mapping[str, Any]) -> bool:
    from runtime.errors import UnsupportedModel
    from runtime.models import describe

    try:
        describe(config)
    except UnsupportedModel:
        return False
    return True
