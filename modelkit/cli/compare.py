"""`modelkit compare`: two models on one text, side by side."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from modelkit.cli.home import complete_model
from modelkit.cli.terminal.progress import Bars, bar
from modelkit.cli.terminal.screen import echo, emit_json
from modelkit.cli.terminal.tables import table
from modelkit.cli.terminal.ui import json_option, size

if TYPE_CHECKING:
    from modelkit.comparing.predictions import Comparison
    from modelkit.comparing.vectors import EmbeddingComparison
    from modelkit.requests.attached import Chosen


@click.command("compare")
@click.argument("a", shell_complete=complete_model)
@click.argument("b", shell_complete=complete_model)
@click.option(
    "--text",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Text to compare on (UTF-8); by default A writes it. For embeddings: one text per line.",
)
@click.option("--embeddings", is_flag=True, help="Compare the vectors that the models make of texts.")
@json_option
def command(a: str, b: str, file: Path | None, embeddings: bool, as_json: bool) -> None:
    """Compare the model B with the model A: packages, folders (./folder) or GGUF files.

    KL is the divergence of B's predictions from A's, in nats per token, and of A's from B's. SPEED is
    measured while the two take turns, token by token. Both need the same vocabulary.

    NAME+ADAPTER is a package with one of its adapters, NAME+ONE+TWO=0.5 with two, the second at scale 0.5.
    The other model then has only the adapters that its own name lists. If neither name has a plus, both
    models have all their adapters.

    Two encoders, or any two models with --embeddings, are compared by the vectors that they make of the
    lines of FILE: cosine similarity, whether each text has the same nearest neighbour, and the rank
    correlation of similarities. Their vocabularies may differ.

    \b
    modelkit compare island island-q4
    modelkit compare ./model island-q4 --text chapter.txt --json
    modelkit compare island island+style
    modelkit compare island+style island-q4+style=0.5
    modelkit compare bge bge-q4 --text questions.txt
    """
    from modelkit.comparing.models import are_encoders
    from modelkit.settings import settings_at

    settings = settings_at(None)
    if embeddings or are_encoders((a, b), settings):
        from modelkit.comparing.vectors import vectors_compared

        texts = _lines(file)
        with bar("comparing texts", 2 * len(texts), enabled=not as_json) as advance:
            vectors = vectors_compared((a, b), settings, texts, speed=True, advance=advance)
        said, shown = vectors.to_json(), _vectors_shown(a, b, vectors)
    else:
        from modelkit.comparing.predictions import compared, read_text

        text = read_text(file) if file else None
        with Bars(enabled=not as_json) as bars:
            found = compared((a, b), settings, text, speed=True, progress=bars)
        said, shown = found.to_json(), _shown(a, b, found)
    if as_json:
        emit_json({"a": a, "b": b, **said})
    else:
        echo(shown)


def _lines(file: Path | None) -> list[str]:
    from modelkit.comparing.predictions import read_text

    if file is None:
        raise click.UsageError(
            "embeddings are compared on your own texts: give --text FILE, one text per line"
        )
    return [line for line in read_text(file).splitlines() if line.strip()]


def _vectors_shown(a: str, b: str, found: "EmbeddingComparison") -> str:
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.4f}"

    rows = [
        *_who(found.adapters),
        ("size", size(found.weight_bytes[0]), size(found.weight_bytes[1])),
        ("elements of a vector", *(str(one) for one in found.dimensions)),
        ("cosine", "", number(found.cosine)),
        ("its least", "", number(found.cosine_least)),
        ("same nearest text", "", f"{found.same_nearest:.1%}"),
        ("rank correlation", "", number(found.rank_correlation)),
        ("texts per second", *(f"{one:.3g}" for one in found.texts_per_s or ())),
        ("speed", "x 1", "" if found.speed is None else f"x {found.speed:.3g}"),
    ]
    texts = f"{found.texts:,} texts"
    if any(found.cut):
        texts += f"; too long and cut: {found.cut[0]} for A, {found.cut[1]} for B"
    return f"{table(rows, header=('', a, b), right=[1, 2])}\n{texts}"


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
    rest = f"; the {found.tokens_left_out:,} behind them were not read" if found.tokens_left_out else ""
    return f"{table(rows, header=('', a, b), right=[1, 2])}\n{found.tokens:,} tokens of {text}{rest}"


def _who(adapters: "tuple[Chosen, Chosen]") -> list[tuple[str, ...]]:
    """The row of adapters, where there are any."""
    from modelkit.requests.attached import texts_of

    return [("adapters", *(texts_of(one) or "none" for one in adapters))] if any(adapters) else []
