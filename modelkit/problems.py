"""Several problems of one kind, said in one line."""

from collections.abc import Sequence

_MOST_TOLD = 3


def sentences_of(problems: Sequence[str]) -> str:
    """Sentences that begin with names, as one line: what holds of several is said once, of the first three.

    `a is missing`, `a.b has no rank`, `c is missing` give `a is missing, and so with c; a.b has no rank`.
    """
    alike: dict[str, list[str]] = {}
    for problem in problems:
        name, _, said = problem.partition(" ")
        alike.setdefault(said, []).append(name)
    sentences = [_of_all(said, names) for said, names in alike.items()][:_MOST_TOLD]
    left = sum(len(names) for names in list(alike.values())[_MOST_TOLD:])
    return "; ".join(sentences) + (f"; and {left} more" if left else "")


def _of_all(said: str, names: list[str]) -> str:
    first, *others = names
    sentence = f"{first} {said}".rstrip()
    if not others:
        return sentence
    left = len(others) - _MOST_TOLD + 1
    rest = f" and {left} more" if left > 0 else ""
    return f"{sentence}, and so with {', '.join(others[: _MOST_TOLD - 1])}{rest}"
