"""Windows: layers that see a number of tokens, and which they are."""

from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.settings import Setting, Special


def windows(
    *,
    period: int | None = None,
    full_first: bool = False,
    pattern: bool = True,
    irregular: bool = False,
    always: int | None = None,
) -> tuple[Setting, ...]:
    """A window for some layers: `sliding_window` and `layer_types`.

    period: which layers see everything where the file does not say, every how many one (the last of them, or
    the first with full_first). pattern: does llama.cpp's converter write which? irregular: does llama.cpp
    read which, though its converter does not write them? always: the window that llama.cpp takes where none
    is told.
    """

    def read(file: Reading) -> None:
        size = file.count("attention.sliding_window", always or 0)
        sliding = told_kinds(file, period, full_first=full_first) if size else [False] * file.layers
        file.config["sliding_window"] = size or None
        file.config["layer_types"] = [WORDS[one] for one in sliding]

    def write(out: Writing) -> None:
        size, told = out.facts.get("sliding_window"), sliding_layers(out)
        if size is None or not any(told):
            if period is not None:
                out.refuse(f"no layer has a window, which GGUF cannot say for {out.architecture}")
            return
        out.put("attention.sliding_window", size)
        regular = period is not None and shown_pattern(told, period, full_first=full_first) is not told
        if pattern or (irregular and not regular):
            out.put("attention.sliding_window_pattern", told)
        elif not regular:
            out.refuse(f"layer_types are not those that llama.cpp takes for {out.architecture}")

    return (Special(read, write),)


def told_kinds(file: Reading, period: int | None, *, full_first: bool) -> list[bool]:
    """Of each layer: does it have a window? A file lists them, says every how many one sees everything, or
    leaves it to llama.cpp's habit, which is `period`; None, and a file's 0: all have one.
    """
    told = file.get("attention.sliding_window_pattern")
    if isinstance(told, list):
        if len(told) < file.layers:
            file.refuse(f"`{file.full('attention.sliding_window_pattern')}` has {len(told)} entries")
        return [bool(one) for one in told[: file.layers]]
    every = told if type(told) is int else period
    if not every:
        return [True] * file.layers
    return [not _is_full(i, every, full_first) for i in range(file.layers)]


def shown_pattern(told: list[bool], every: int, *, full_first: bool) -> int | list[bool]:
    """What a file says of layers with a window: every how many one has none, or the list where that is not
    so.
    """
    regular = told == [not _is_full(i, every, full_first) for i in range(len(told))]
    return every if regular else told


WORDS = {True: "sliding_attention", False: "full_attention"}


def _is_full(layer: int, every: int, first: bool) -> bool:
    return layer % every == (0 if first else every - 1)


def sliding_layers(out: Writing) -> list[bool]:
    """Of each layer: does it have a window? By `layer_types`."""
    kinds = out.facts.get("layer_types", default=())
    if kinds:
        return [kind == WORDS[True] for kind in kinds]
    return [out.facts.get("sliding_window") is not None] * out.facts.layers


def no_window(out: Writing) -> None:
    """llama.cpp computes these models without one, so what is written only matters up to its length."""
    size = out.facts.get("sliding_window")
    if size is None or out.facts.get("use_sliding_window") is False:
        return
    if out.facts.get("layer_types") and not any(sliding_layers(out)):
        return
    out.otherwise += ["windows", "window"]
    out.notes.append(f"the window of {size:,} tokens has no place in GGUF: llama.cpp will see further back")


NO_WINDOW = Special(writing=no_window)
