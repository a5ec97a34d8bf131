"""Tools, and arguments that fit them, at random: as agents' schemas are, with texts that look like marks."""

import json
import random
from collections.abc import Callable
from typing import Any

Make = Callable[[random.Random], Any]
Made = tuple[dict[str, Any], Make]
"""(a schema, values of it in the schema's order)."""

_LETTERS = [*"abcXYZ 019_-.,:;!?'\"\\/{}[]()<>=|&%$#@*+~^`\n\t", "é", "日", "🙂", "\u200b", "\u2028"]
_PIECES = [*_LETTERS, "</", "<|", "```", '{"', "\\n", "\\u0041", "None", "true", "<tool", "null"]
_WHOLE = ["", "true", "12", "null", "{}", "[1]", "None", '"q"', "123 Main St"]
_BARE = ["a", "city", "unit_2", "value", "name", "arguments", "parameters", "id", "type", "items", "_", "__x"]
_OTHER = ["x-y", "café", "日本", "with space", "a.b", "1st", "class"]
_WHOLES = [0, -1, 7, 10**6, 2**31, 2**53, -(2**53), 10**15]
_NUMBERS = [0.5, -0.25, 1e-7, 1e22, 1e300, 3.141592653589793, -0.0]


def text(rng: random.Random) -> str:
    if rng.random() < 0.2:
        return rng.choice(_WHOLE)
    return "".join(rng.choices(_PIECES, k=rng.choice([1, 2, 5, 20]))).strip()


def number(rng: random.Random) -> float:
    return rng.choice([*_WHOLES, *_NUMBERS])


def plain_text(rng: random.Random) -> str:
    """Where it may be anything, a raw text that is JSON would be read as that."""
    said = text(rng)
    try:
        json.loads(said)
    except ValueError:
        return said
    return "x"


def anything(rng: random.Random, depth: int = 0) -> Any:
    kinds: list[Make] = [plain_text, number, lambda _: None, lambda rng: rng.random() < 0.5]
    if depth < 2:
        # Not empty ones: where lists and objects are tags, those look like an empty text.
        kinds.append(lambda rng: [anything(rng, depth + 1) for _ in range(rng.randint(1, 2))])
        kinds.append(
            lambda rng: {rng.choice(_BARE): anything(rng, depth + 1) for _ in range(rng.randint(1, 2))}
        )
    return rng.choice(kinds)(rng)


def scalar(rng: random.Random) -> Any:
    return anything(rng, depth=2)


def schema(rng: random.Random, names: list[str], depth: int = 0, loose: Make = anything) -> Made:
    chance = rng.random()
    if depth < 3 and chance < 0.15:
        inner, make = schema(rng, names, depth + 1, loose)
        return {"type": "array", "items": inner}, lambda rng: [make(rng) for _ in range(rng.randint(0, 2))]
    if depth < 3 and chance < 0.35:
        return whole(rng, names, depth + 1, loose)
    if chance < 0.45:
        listed = [text(rng) for _ in range(rng.randint(1, 3))]
        return {"enum": listed}, lambda rng: rng.choice(listed)
    if chance < 0.5:
        return {}, loose
    return rng.choice(
        [
            ({"type": "string"}, text),
            ({"type": "string", "maxLength": 400}, text),
            ({"type": "integer"}, lambda rng: rng.choice(_WHOLES)),
            ({"type": "number"}, number),
            ({"type": "boolean"}, lambda rng: rng.random() < 0.5),
            ({"type": ["integer", "null"]}, lambda rng: rng.choice([None, 3])),
            ({"anyOf": [{"type": "boolean"}, {"type": "array"}]}, lambda rng: rng.choice([True, [1, "a"]])),
        ]
    )


def whole(rng: random.Random, names: list[str], depth: int = 0, loose: Make = anything) -> Made:
    """Of an object. loose: makes a value where the schema allows any."""
    parts = {name: schema(rng, names, depth, loose) for name in rng.sample(names, rng.randint(0, 4))}
    must = [name for name in parts if rng.random() < 0.6]
    said: dict[str, Any] = {"type": "object", "properties": {name: one for name, (one, _) in parts.items()}}
    if must or rng.random() < 0.5:
        said["required"] = must

    def make(rng: random.Random) -> dict[str, Any]:
        return {name: its(rng) for name, (_, its) in parts.items() if name in must or rng.random() < 0.6}

    return said, make


def tools(
    rng: random.Random, *, bare: bool, loose: Make = anything
) -> tuple[list[dict[str, Any]], dict[str, Make]]:
    """(tools in OpenAI's shape, how the arguments of each are made). bare: names are words of a program."""
    names = _BARE if bare else _BARE + _OTHER
    made = {
        name: whole(rng, names, loose=loose) for name in rng.sample(["get_weather", "now", "f", "Send2"], 2)
    }
    listed = [
        {"type": "function", "function": {"name": name, "parameters": one}} for name, (one, _) in made.items()
    ]
    return listed, {name: make for name, (_, make) in made.items()}
