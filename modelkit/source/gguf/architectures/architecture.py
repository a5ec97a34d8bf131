"""One row of the table: an architecture of llama.cpp's as settings and rules."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from modelkit.source.gguf.architectures.exchange import Reading
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Link, Shape
from modelkit.source.gguf.architectures.rules import Members, Rule
from modelkit.source.gguf.architectures.settings import Setting
from runtime.records import dataclass

_THEIR_LAYER = re.compile(r"blk\.(\d{1,5})\.(.+)", re.ASCII)
_LEAVES = (".weight", ".bias")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a checkpoint of the architecture calls itself."""

    model_type: str
    class_name: str
    """`architectures[0]` of config.json."""
    when: Callable[[Reading], bool] = lambda _: True
    """Does a GGUF file hold this kind? The first one of an architecture that says yes is taken."""
    aliases: tuple[str, ...] = ()
    """Other model types whose text is the same, for writing."""
    settings: tuple[Setting, ...] = ()
    """Besides those of the architecture."""


@dataclass(frozen=True, slots=True)
class Architecture:
    name: str
    """`general.architecture`."""
    kinds: tuple[Kind, ...]
    settings: tuple[Setting, ...]
    """In the order in which they are read: later ones may look at the fields of earlier ones."""
    top: tuple[Rule, ...]
    """Tensors outside the blocks."""
    block: tuple[Rule, ...]
    """Tensors of a block; theirs begin with `blk.N.`, ours with `home`."""
    home: str = "model.layers.{}."
    exact: str = "bits"
    """How much comes back: `bits`, or what does not, in a few words for the documentation."""
    head: tuple[Rule, ...] = ()
    """Of a draft head's block, besides `block`. A name that begins with `^` is whole."""
    head_home: str = ""
    """Where a draft head's block lies in a checkpoint, counted from 0; "": behind the layers."""
    condition: Callable[[Mapping[str, Any]], bool] | None = None
    """Where several architectures have a kind in common: which configs are written as this one."""

    looks_ahead: bool = False
    """Do tokens see those behind them? Then it makes embeddings."""

    def writes(self, config: Mapping[str, Any]) -> bool:
        """Is it this architecture that a config of one of its kinds is written as?"""
        return self.condition is None or self.condition(config)

    def kind_named(self, model_type: str) -> Kind | None:
        return next((kind for kind in self.kinds if model_type in (kind.model_type, *kind.aliases)), None)


def links_from_theirs(
    row: Architecture, shapes: Mapping[str, Shape], facts: Facts
) -> tuple[list[Link], list[str]]:
    """The links of a GGUF file's tensors, and the names that no rule knows or that do not fit theirs."""
    return _links(row, shapes, facts, ours=False)


def links_from_ours(
    row: Architecture, shapes: Mapping[str, Shape], facts: Facts
) -> tuple[list[Link], list[str]]:
    """The same for a checkpoint's tensors."""
    return _links(row, shapes, facts, ours=True)


def _links(
    row: Architecture, shapes: Mapping[str, Shape], facts: Facts, *, ours: bool
) -> tuple[list[Link], list[str]]:
    links: list[Link] = []
    left = dict(shapes)
    for name in shapes:
        if name not in left:
            continue
        link = next(_matching(row, name, left, facts, ours=ours), None)
        if link is None:
            continue
        links.append(link)
        for side in link.ours if ours else link.theirs:
            left.pop(side.name, None)
    return links, list(left)


def names_of(row: Architecture, facts: Facts) -> Iterator[str]:
    """Every name that a checkpoint's tensor may have for a rule to know it, draft heads apart."""
    for home, rules in (
        ("", row.top),
        *((row.home.format(layer), row.block) for layer in range(facts.layers)),
    ):
        for template in (name for rule in rules if rule.written for name in rule.ours):
            leaves = _LEAVES if template.endswith(".*") else ("",)
            yield from (home + template.removesuffix(".*") + leaf for leaf in leaves)


def layer_of(row: Architecture, name: str, facts: Facts) -> int:
    """The layer that a checkpoint's tensor belongs to, draft heads' after the model's; -1: none."""
    return _place(row, name, facts, ours=True)[0]


def _matching(
    row: Architecture, name: str, shapes: Mapping[str, Shape], facts: Facts, *, ours: bool
) -> Iterator[Link]:
    """The links that rules make of a tensor and those that belong to it, best first."""
    layer, bare, rules = _place(row, name, facts, ours=ours)
    for rule in rules:
        given, other = (rule.ours, rule.theirs) if ours else (rule.theirs, rule.ours)
        if ours and not rule.written:
            continue
        leaf = next((found for t in given if (found := _leaf(t, bare)) is not None), None)
        if leaf is None:
            continue
        names = tuple(_full(row, t, leaf, layer, facts, ours=ours) for t in given)
        if any(member not in shapes for member in names):
            continue
        others = tuple(_full(row, t, leaf, layer, facts, ours=not ours) for t in other)
        theirs, mine = (others, names) if ours else (names, others)
        here = {member: shapes[member] for member in names}
        link = rule.move.link(Members(theirs, mine, here, facts, max(layer, 0)))
        if link is not None:
            yield link


def _place(row: Architecture, name: str, facts: Facts, *, ours: bool) -> tuple[int, str, Sequence[Rule]]:
    """(layer or -1, the rest of the name, the rules for it). Draft heads' layers come after the model's."""
    found = (_pattern(row.home) if ours else _THEIR_LAYER).fullmatch(name)
    if found is not None:
        layer = int(found[1])
        return layer, found[2], (*row.head, *row.block) if layer >= facts.layers else row.block
    if ours and row.head_home:
        found = _pattern(row.head_home).fullmatch(name)
        if found is not None:
            return facts.layers + int(found[1]), found[2], row.block
    if ours and any(f"^{name}" in rule.ours for rule in row.head):
        return facts.layers, f"^{name}", row.head
    return -1, name, row.top


@cache
def _pattern(home: str) -> re.Pattern[str]:
    return re.compile(re.escape(home).replace(r"\{\}", r"(\d{1,5})") + "(.+)", re.ASCII)


def _leaf(template: str, name: str) -> str | None:
    """What the `.*` of a template stands for in a name; "" where it has none and is the name."""
    if not template.endswith(".*"):
        return "" if template == name else None
    rest = name.removeprefix(template[:-2])
    return rest if template[:-2] + rest == name and rest in _LEAVES else None


def _full(row: Architecture, template: str, leaf: str, layer: int, facts: Facts, *, ours: bool) -> str:
    name = template[:-2] + leaf if template.endswith(".*") else template
    if name.startswith("^"):
        return name[1:]
    if layer < 0:
        return name
    if not ours:
        return f"blk.{layer}.{name}"
    head = row.head_home and layer >= facts.layers
    return (row.head_home.format(layer - facts.layers) if head else row.home.format(layer)) + name
