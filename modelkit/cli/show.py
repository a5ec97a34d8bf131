"""`modelkit show`: what a package holds, in sections, as one of its texts, or as JSON."""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from textwrap import indent
from typing import TYPE_CHECKING, Any

import click

from modelkit.cli.home import complete_name, open_store
from modelkit.cli.options.machines import (
    machine_options,
    names_machines,
    note_limits,
    plan_heading,
    plan_table,
    planned,
)
from modelkit.cli.terminal.screen import echo, emit_json, emit_text, note, width
from modelkit.cli.terminal.tables import WHOLE, sections
from modelkit.cli.terminal.ui import count, json_option, quantity, size, wrapped
from modelkit.fetch.upstream import read_upstream

if TYPE_CHECKING:
    from modelkit.showing.planning import Planned
    from modelkit.store import Package, Store

_PARTS = ("modelfile", "parameters", "template", "system", "license")
_TEXT_LINES = 2

Facts = dict[str, Any]
Rows = list[tuple[str, ...]]


@click.command("show")
@click.argument("name", shell_complete=complete_name)
@click.option("--modelfile", is_flag=True, help="Print a Modelfile that would make this package again.")
@click.option("--parameters", is_flag=True, help="Print the parameters that it sets.")
@click.option("--template", is_flag=True, help="Print the chat template.")
@click.option("--system", is_flag=True, help="Print the system message.")
@click.option("--license", is_flag=True, help="Print the licenses.")
@click.option("--quality", is_flag=True, help="Print how its formats were chosen, and the quality they cost.")
@click.option("-v", "--verbose", is_flag=True, help="List every tensor too.")
@machine_options
@json_option
def command(name: str, quality: bool, verbose: bool, as_json: bool, **options: Any) -> None:
    """Show what the package NAME holds.

    Memory is what the layers remember on this machine: per token, and for one sequence of the longest
    context that the package allows. Next to "tools" is the output style in which the model calls them, next
    to "thinking" the settings it understands. With --hosts or --ranks, it also shows what part of the model
    each machine would have, as `modelkit plan` does.
    """
    chosen, shares = _asked(quality, verbose, as_json, options)
    store = open_store()
    with store.hold(name) as package:
        if quality:
            from modelkit.cli.quality import show_quality

            show_quality(package, as_json)
            return
        if chosen is not None:
            print_part(package, store, chosen)
            return
        from modelkit.showing.facts import facts_of

        facts = facts_of(store, package, tensors=verbose)
    plan = planned(name, options) if shares else None
    if plan is not None:
        facts["plan"] = plan.to_json()
    if as_json:
        emit_json(facts)
        return
    echo(overview(facts))
    if plan is not None:
        _show_plan(plan)
    for sentence in facts.get("unused", ()):
        note(sentence)
    if facts["template_problem"]:
        note(f"no chat, plain prompts only: {facts['template_problem']}")
    if facts["problem"]:
        note(facts["problem"])
    if facts["draft"] and facts["draft"].get("problem"):
        note(f"the draft: {facts['draft']['problem']}")


def _asked(quality: bool, verbose: bool, as_json: bool, options: dict[str, Any]) -> tuple[str | None, bool]:
    """The one part that is to be printed as it is, and whether machines are named. Raises UsageError for
    options that do not go together.
    """
    chosen, shares = [part for part in _PARTS if options[part]], names_machines(options)
    if shares and (quality or chosen):
        raise click.UsageError("machines can be given alone, or with --json or --verbose")
    if quality and (chosen or verbose):
        raise click.UsageError("--quality can be given alone, or with --json")
    if len(chosen) > 1 or (chosen and (verbose or as_json)):
        flags = ", ".join(f"--{part}" for part in _PARTS)
        raise click.UsageError(f"give one of {flags}, and none of them with --json or --verbose")
    return chosen[0] if chosen else None, shares


def _show_plan(plan: "Planned") -> None:
    columns = width()
    shown = plan_table(plan, None if columns is None else columns - 4)
    title = wrapped(f"  Machines ({plan_heading(plan)})", columns, "  ")
    echo(f"\n{title}\n{indent(shown, '    ')}")
    note_limits(plan)


def overview(facts: Facts) -> str:
    """The facts of a package in titled sections."""
    draft = facts["draft"]
    what: dict[str, Rows] = {
        "Model": _model(facts),
        "Adapters": [_adapter(one) for one in facts["adapters"]],
        "Draft": _draft(draft, _fetched_from(facts, "draft")) if draft else [],
    }
    parts: dict[str, Rows] = {
        **_memory(facts),
        "Capabilities": list(_capabilities(facts)),
        **_speculation(facts["speculation"]),
        "Parameters": list(_parameters(facts["parameters"])),
        "System": _beginning(facts["system"] or ""),
        "Messages": [(one["role"], one["content"]) for one in facts["messages"]],
        "License": [line for text in facts["licenses"].values() for line in _beginning(text)],
        "Tensors": _tensors(facts),
        "Draft tensors": _tensors(draft or {}),
    }
    return "\n\n".join(filter(None, (sections(what, limit=WHOLE), sections(parts))))


def print_part(
    package: "Package", store: "Store", part: str, emit: Callable[[str], None] = emit_text
) -> None:
    """One of the package's texts; a note where it has none."""
    from modelkit.showing.texts import PARTS, modelfile

    text = modelfile(package, store) if part == "modelfile" else PARTS[part](package)
    if text:
        emit(text)
    else:
        note(f"{package.name} has no {part}")


def _model(facts: Facts) -> Rows:
    rows = [
        ("architecture", facts["architecture"]),
        ("parameters", _amount(facts.get("parameter_count"))),
        ("context length", _plain(facts.get("context_length"))),
        ("embedding length", _plain(facts.get("embedding_length"))),
        ("embeddings", facts.get("embeddings")),
        ("format", _format(facts)),
        ("draft head", _head(facts)),
        ("size", size(facts["size_bytes"])),
        ("digest", facts["digest"]),
        ("outline of", facts["outline_of"] and facts["outline_of"]["address"]),
        ("from", _fetched_from(facts, "target")),
        ("license", facts["provenance"].get("target", {}).get("upstream", {}).get("licence")),
        ("requires", facts["requires"]),
        ("renderer", facts["renderer"]),
        ("parser", facts["parser"]),
    ]
    return [(name, value) for name, value in rows if value]


def _capabilities(facts: Facts) -> Iterator[tuple[str, ...]]:
    """Of tools the style in which the model calls them, of thinking what it offers."""
    style, thinking = facts["style"] or {}, facts["thinking"] or {}
    more = {"tools": style.get("name"), "thinking": thinking.get("said")}
    for name in facts["capabilities"]:
        yield name, more.get(name) or ""


def _fetched_from(facts: Facts, role: str) -> str | None:
    upstream = facts["provenance"].get(role, {}).get("upstream")
    return read_upstream(upstream).address if upstream else None


def _head(facts: Facts) -> str | None:
    head = facts.get("head")
    return f"{count(head['layers'], 'layer')}, {size(head['size_bytes'])}" if head else None


def _draft(draft: Facts, fetched_from: str | None) -> Rows:
    rows = [
        ("architecture", draft["architecture"]),
        ("parameters", _amount(draft.get("parameter_count"))),
        ("format", _format(draft)),
        ("size", size(draft["weight_bytes"]) if "weight_bytes" in draft else size(draft["size_bytes"])),
        ("from", fetched_from),
    ]
    return [(name, value) for name, value in rows if value]


def _adapter(one: Facts) -> tuple[str, ...]:
    if one.get("fused"):
        return (one["name"], one["kind"], "fused into the weights", one["base"] or "")
    ranked = f"rank {one['rank']}, {count(one['modules'], 'module')}"
    return (one["name"], one["kind"], ranked, size(one["size_bytes"]), one["base"] or "")


def _memory(facts: Facts) -> dict[str, Rows]:
    """One row per kind of layer, target's and draft's, and their sum; empty where it is not known."""
    models = [("", facts), *([("draft ", facts["draft"])] if facts["draft"] else [])]
    known = [(prefix, memory) for prefix, model in models if (memory := model.get("memory"))]
    if not known:
        return {}
    rows: Rows = [
        (
            prefix + kind["kind"],
            count(kind["layers"], "layer"),
            kind["format"] or "",
            f"{size(kind['layers'] * kind['bytes_per_token'])} per token",
            f"{size(kind['layers'] * kind['bytes_per_sequence'])} per sequence",
        )
        for prefix, memory in known
        for kind in memory["kinds"]
    ]
    if len(rows) > 1:
        sums = [sum(memory[key] for _, memory in known) for key in ("bytes_per_token", "bytes_per_sequence")]
        rows.append(("all", "", "", f"{size(sums[0])} per token", f"{size(sums[1])} per sequence"))
    memory = known[0][1]
    return {f"Memory ({memory['dtype']}, sequences of {memory['tokens']:,} tokens)": rows}


def _speculation(learned: Sequence[Facts]) -> dict[str, Rows]:
    """A block for each machine: what was learned stands last, and is wrapped where it is long."""
    graded = {"lookup", *(one["drafter"] for one in learned if one["grade"] > 1)}
    return {
        f"Speculation ({setting})": [_learned(one, graded) for one in learned if one["setting"] == setting]
        for setting in dict.fromkeys(one["setting"] for one in learned)
    }


def _learned(one: Facts, graded: Collection[str]) -> tuple[str, ...]:
    """What the next run would begin with, for one drafter in one setting. graded: those whose guesses are of
    several grades.
    """
    grade = f" {one['grade']}" if one["drafter"] in graded else ""
    kept = ", ".join(f"{share:.0%}" for share in one["acceptance"][: max(one["depth"], 1)])
    return (
        f"{one['drafter']}{grade}" + (f", up to {one['rows']} at once" if one["rows"] > 1 else ""),
        f"depth {one['depth']}",
        f"accepts {kept}" if kept else "",
    )


def _parameters(values: Facts) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            yield name, json.dumps(one, ensure_ascii=False)


def _beginning(text: str) -> Rows:
    lines = [line for line in text.splitlines() if line.strip()]
    more = [("...",)] if len(lines) > _TEXT_LINES else []
    return [(line.strip(),) for line in lines[:_TEXT_LINES]] + more


def _tensors(model: Facts) -> Rows:
    return [
        (t["name"], t["format"], " x ".join(map(str, t["shape"])), size(t["size_bytes"]))
        for t in model.get("tensors", [])
    ]


def _format(model: Facts) -> str | None:
    bits = model.get("bits_per_weight")
    return f"{model['format']} ({bits:.3g} bits per weight)" if bits else model["format"]


def _amount(number: int | None) -> str | None:
    return None if number is None else quantity(number)


def _plain(number: int | None) -> str | None:
    return None if number is None else f"{number:,}"
