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
class Stack:
    """Blocks with numbers from 0: a decoder's, or an encoder's."""

    theirs: str
    """Where a block lies in a GGUF file; `{}` is its number."""
    ours: str
    """And in a checkpoint."""
    rules: tuple[Rule, ...]
    layers: Callable[[Facts], int] = lambda facts: facts.layers
    """How many there are."""


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
    otherwise: tuple[str, ...] = ()
    """Fields of the runtime's config that come back with other values, for the same function."""
    head: tuple[Rule, ...] = ()
    """Of a draft head's block, besides `block`. A name that begins with `^` is whole."""
    head_home: str = ""
    """Where a draft head's block lies in a checkpoint, counted from 0; "": behind the layers."""
    stacks: tuple[Stack, ...] = ()
    """Of what has several, in place of `block` and `home`; such have no draft heads."""
    condition: Callable[[Mapping[str, Any]], bool] | None = None
    """Where several architectures have a kind in common: which configs are written as this one."""

    looks_ahead: bool = False
    """Do tokens see those behind them? Then it makes embeddings."""
    either_way: bool = False
    """May a file say that they do, or not?"""
    always_ahead: bool = False
    """Do they so in llama.cpp, whatever a file says?"""
    dense: bool = False
    """Has a file a place for the two Dense modules that follow pooling?"""
    of_target: bool = False
    """A draft without an embedding and a head: its target's are its own."""
    all_head: bool = False
    """A draft whose layers a file counts as those of a head."""
    wrapped: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """The config.json of a checkpoint that keeps what is read in a block of its own."""
    written: bool = True
    """False: files of it are read, and its models are written as another."""

    def writes(self, config: Mapping[str, Any]) -> bool:
        """Is it this architecture that a config of one of its kinds is written as?"""
        return self.written and (self.condition is None or self.condition(config))

    @property
    def every_stack(self) -> tuple[Stack, ...]:
        return self.stacks or (Stack("blk.{}.", self.home, self.block),)

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
    stacks = row.every_stack
    for home, rules in (
        ("", row.top),
        *((s.ours.format(layer), s.rules) for s in stacks for layer in range(s.layers(facts))),
    ):
        for template in (name for rule in rules if rule.written for name in rule.ours):
            leaves = _LEAVES if template.endswith(".*") else ("",)
            yield from (home + template.removesuffix(".*") + leaf for leaf in leaves)


def layer_of(row: Architecture, name: str, facts: Facts) -> int:
    """The layer that a checkpoint's tensor belongs to, draft heads' after the model's; -1: none, or one of
    several stacks.
    """
    return -1 if row.stacks else _place(row, name, facts, ours=True).layer


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a name lies."""

    rest: str
    """The name within its block."""
    rules: Sequence[Rule]
    """Those that may know it."""
    layer: int = -1
    """-1: in no block."""
    homes: tuple[str, str] = ("", "")
    """What names of the block begin with in a GGUF file, and in a checkpoint."""


def _matching(
    row: Architecture, name: str, shapes: Mapping[str, Shape], facts: Facts, *, ours: bool
) -> Iterator[Link]:
    """The links that rules make of a tensor and those that belong to it, best first."""
    place = _place(row, name, facts, ours=ours)
    for rule in place.rules:
        given, other = (rule.ours, rule.theirs) if ours else (rule.theirs, rule.ours)
        if ours and not rule.written:
            continue
        leaf = next((found for t in given if (found := _leaf(t, place.rest)) is not None), None)
        if leaf is None:
            continue
        names = tuple(_full(t, leaf, place.homes[ours]) for t in given)
        if any(member not in shapes for member in names):
            continue
        others = tuple(_full(t, leaf, place.homes[not ours]) for t in other)
        theirs, mine = (others, names) if ours else (names, others)
        here = {member: shapes[member] for member in names}
        link = rule.move.link(Members(theirs, mine, here, facts, max(place.layer, 0)))
        if link is not None:
            yield link


def _place(row: Architecture, name: str, facts: Facts, *, ours: bool) -> _Place:
    """Draft heads' layers come after the model's."""
    for stack in row.every_stack:
        found = _pattern(stack.ours if ours else stack.theirs).fullmatch(name)
        if found is not None and (not row.stacks or int(found[1]) < stack.layers(facts)):
            layer = int(found[1])
            rules = (*row.head, *stack.rules) if layer >= facts.layers and not row.stacks else stack.rules
            return _Place(found[2], rules, layer, _homes(row, stack, layer, facts))
    if ours and row.head_home:
        found = _pattern(row.head_home).fullmatch(name)
        if found is not None:
            layer = facts.layers + int(found[1])
            return _Place(found[2], row.block, layer, _homes(row, row.every_stack[0], layer, facts))
    if ours and any(f"^{name}" in rule.ours for rule in row.head):
        homes = _homes(row, row.every_stack[0], facts.layers, facts)
        return _Place(f"^{name}", row.head, facts.layers, homes)
    return _Place(name, row.top)


def _homes(row: Architecture, stack: Stack, layer: int, facts: Facts) -> tuple[str, str]:
    head = row.head_home and layer >= facts.layers
    mine = row.head_home.format(layer - facts.layers) if head else stack.ours.format(layer)
    return stack.theirs.format(layer), mine


@cache
def _pattern(home: str) -> re.Pattern[str]:
    return re.compile(re.escape(home).replace(r"\{\}", r"(\d{1,5})") + "(.+)", re.ASCII)


def _leaf(template: str, name: str) -> str | None:
    """What the `.*` of a template stands for in a name; "" where it has none and is the name."""
    if not template.endswith(".*"):
        return "" if template == name else None
    rest = name.removeprefix(template[:-2])
    return rest if template[:-2] + rest == name and rest in _LEAVES else None


def _full(template: str, leaf: str, home: str) -> str:
    name = template[:-2] + leaf if template.endswith(".*") else template
    return name[1:] if name.startswith("^") else home + name
