"""`modelkit embed`: vectors of texts."""

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, TextIO

import click

from modelkit.cli.home import complete_model
from modelkit.cli.options.adapters import adapter_options, wanted_adapters
from modelkit.cli.options.limits import Whole
from modelkit.cli.options.ranks import progress_of_ranks, rank_options
from modelkit.cli.terminal.screen import Waiting, echo, emit_json, note
from modelkit.cli.terminal.typed import TEXT
from modelkit.cli.terminal.ui import json_option
from modelkit.errors import RequestError

if TYPE_CHECKING:
    from modelkit.loaded.embedding import Embeddings

_TOGETHER = 64
_LONGEST = 16 << 20  # characters of a text


@click.command("embed")
@click.argument("name", shell_complete=complete_model)
@click.argument("texts", nargs=-1, type=TEXT, metavar="[TEXT]...")
@click.option("--dimensions", type=Whole(1), help="Keep only the first N elements of each vector.")
@click.option("--no-truncate", is_flag=True, help="Refuse a text that is too long instead of cutting it.")
@click.option(
    "--prompt-name", type=TEXT, metavar="NAME", help="Which of the model's prompts to put before each text."
)
@adapter_options
@rank_options
@json_option
def command(name: str, texts: tuple[str, ...], **options: Any) -> None:
    """Print the vector that the model NAME makes of each TEXT: a JSON list per line, normalized to length 1.

    Without TEXT, or with -, each line of standard input is a text. A text without tokens has a vector of
    zeros.
    """
    from modelkit.requests.attached import read_texts
    from modelkit.verbs import load

    if not texts and sys.stdin.isatty():
        raise click.UsageError("give a TEXT, or lines on standard input")
    wanted: dict[str, Any] = {
        "dimensions": options["dimensions"],
        "truncate": not options["no_truncate"],
        "prompt_name": options["prompt_name"],
    }
    chosen = wanted_adapters(options["adapter"], none=options["no_adapters"])
    cut = 0
    with Waiting(f"loading {name}", more=progress_of_ranks):
        model = load(name, ranks=options["ranks"], shards=options["shards"])
    with model:
        if chosen is not None:
            wanted["adapters"] = dict(read_texts(chosen, model.adapters))
        rows: list[dict[str, Any]] = []
        for some in _some(_lines(sys.stdin) if texts in ((), ("-",)) else texts):
            found = model.embed(some, **wanted)
            cut += sum(dropped > 0 for dropped in found.dropped)
            if options["as_json"]:
                rows += _rows(found)
                continue
            for vector in found.vectors:
                echo(json.dumps(vector.tolist()))
        if options["as_json"]:
            emit_json({"model": model.name, "pooling": model.pooling, "embeddings": rows})
    if cut:
        note(f"{cut} of the texts {'was' if cut == 1 else 'were'} too long and cut short")


def _rows(found: "Embeddings") -> Iterator[dict[str, Any]]:
    for vector, tokens, dropped in zip(found.vectors, found.tokens, found.dropped, strict=True):
        yield {"embedding": vector.tolist(), "tokens": tokens, "dropped_tokens": dropped}


def _lines(stream: TextIO) -> Iterator[str]:
    for number in count(1):
        line = stream.readline(_LONGEST + 1)
        if not line:
            return
        if len(line) > _LONGEST:
            raise RequestError(f"line {number} of standard input has more than {_LONGEST:,} characters")
        yield line.rstrip("\r\n")


def _some(texts: Iterable[str]) -> Iterator[list[str]]:
    """In lots that are read together."""
    lot: list[str] = []
    for text in texts:
        lot.append(text)
        if len(lot) == _TOGETHER:
            yield lot
            lot = []
    if lot:
        yield lot
