"""`modelkit compare`: two models on one text, side by side."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from modelkit.cli.home import complete_name
from modelkit.cli.progress import bar
from modelkit.cli.screen import echo, emit_json
from modelkit.cli.tables import table
from modelkit.cli.ui import json_option, size

if TYPE_CHECKING:
    from modelkit.attached import Chosen
    from modelkit.comparison import Comparison


@click.command("compare")
@click.argument("a", shell_complete=complete_name)
@click.argument("b", shell_complete=complete_name)
@click.option(
    "--text",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The text to compare on (UTF-8); without one A writes it.",
)
@json_option
def command(a: str, b: str, file: Path | None, as_json: bool) -> None:
    """Compare the model B with the model A: packages, folders (./folder) or GGUF files of one vocabulary.

    KL is how far B's predictions are from A's, in nats per token, and back; SPEED is measured with the two
    taking turns, one token after the other.

    NAME+ADAPTER is a package with that adapter of its own, NAME+ONE+TWO=0.5 with two, the second at that
    scale. The other model then has those that are named behind it, and no more. Where neither name has a
    plus, both have all of theirs.

    \b
    modelkit compare island island-q4
    modelkit compare ./model island-q4 --text chapter.txt --json
    modelkit compare island island+style
    modelkit compare island+style island-q4+style=0.5
    """
    from modelkit.compared_texts import TEXTS, TOKENS
    from modelkit.comparison import compared, read_text
    from modelkit.settings import settings_at

    text = read_text(file) if file else None
    with bar("comparing tokens", TEXTS * TOKENS, enabled=not as_json and file is None) as advance:
        found = compared((a, b), settings_at(None), text, speed=True, advance=advance)
    if as_json:
        emit_json({"a": a, "b": b, **found.to_json()})
    else:
        echo(_shown(a, b, found))


def _shown(a: str, b: str, found: "Comparison") -> str:
    speed = "" if found.speed is None else f"x {found.speed:.3g}"
    rows = [
        *_who(found.adapters),
        ("size", size(found.weight_bytes[0]), size(found.weight_bytes[1])),
        ("perplexity", f"{found.perplexities[0]:.4g}", f"{found.perplexities[1]:.4g}"),
        ("KL from the other", f"{found.kl_back:.3g}", f"{found.kl:.3g}"),
        ("its 99th percentile", "", f"{found.kl_p99:.3g}"),
        ("same likeliest token", "", f"{found.same_top:.1%}"),
        ("speed", "x 1", speed),
    ]
    text = "text that A wrote itself" if found.own_text else "the text that was given"
    return f"{table(rows, header=('', a, b), right=[1, 2])}\n{found.tokens} tokens of {text}"


def _who(adapters: "tuple[Chosen, Chosen]") -> list[tuple[str, ...]]:
    """The row of adapters, where there are any."""
    from modelkit.attached import texts_of

    return [("adapters", *(texts_of(one) or "none" for one in adapters))] if any(adapters) else []
