"""What one can ask about Lantern Island without a story: questions and answers, made from world.py."""

from collections.abc import Iterator
from dataclasses import dataclass

from world import CAST, LORE, PLACES, Place, Someone


@dataclass(frozen=True, slots=True)
class Fact:
    """`asks` and `answers` are ways to say one thing, the commonest first; `about` is whom it concerns."""

    asks: tuple[str, ...]
    answers: tuple[str, ...]
    short: str  # the answer in a few words
    about: str = ""
    asks_on: tuple[str, ...] = ()  # the same question with a pronoun, once `about` has been spoken of


def _fact(asks: tuple[str, ...], answer: str, short: str, s: Someone, *asks_on: str) -> Fact:
    return Fact(asks, (answer,), short[0].upper() + short[1:] + ".", s.name, asks_on)


def _of_someone(s: Someone) -> Iterator[Fact]:
    home = s.home.lives
    yield Fact(
        (f"Who is {s}?", f"Tell me about {s}."),
        (
            f"{s} is {s.is_a} and lives {home}. {s.He} {s.works}.",
            f"{s} is {s.is_a}. {s.He} likes {s.likes}, but {s.he} is afraid of {s.fears}.",
        ),
        s.is_a[0].upper() + s.is_a[1:] + ".",
        s.name,
    )
    yield _fact(
        (f"Where does {s} live?", f"Where does {s.the} live?", f"Where can I find {s}?"),
        f"{s} lives {home}.", home, s, f"Where does {s.he} live?", f"And where does {s.he} live?",
    )  # fmt: skip
    yield _fact(
        (f"What does {s} do?", f"What does {s.the} do?", f"What does {s} do all day?"),
        f"{s} {s.works}.", s.works, s, f"What does {s.he} do?",
    )  # fmt: skip
    yield _fact(
        (f"What does {s} like?", f"What does {s.the} like?", f"What does {s} like best?"),
        f"{s} likes {s.likes}.", s.likes, s, f"What does {s.he} like?", f"And what does {s.he} like?",
    )  # fmt: skip
    yield _fact(
        (f"What is {s} afraid of?", f"What is {s.the} afraid of?", f"Is {s} afraid of anything?"),
        f"{s} is afraid of {s.fears}.", s.fears, s,
        f"What is {s.he} afraid of?", f"Is {s.he} afraid of anything?",
    )  # fmt: skip
    yield _fact(
        (f"What does {s} own?", f"What does {s} always carry?"),
        f"{s} always has {s.his} {s.owns}.", f"{s.his} {s.owns}", s, f"What does {s.he} own?",
    )  # fmt: skip
    yield _fact((f"Who {s.works}?",), f"{s} {s.works}.", s.name, s)
    yield _fact((f"Who likes {s.likes}?",), f"{s} likes {s.likes}.", s.name, s)
    yield _fact((f"Who is afraid of {s.fears}?",), f"{s} is afraid of {s.fears}.", s.name, s)
    yield _fact((f"Who has a {s.owns}?",), f"{s} has the {s.owns}.", s.name, s)
    yield _fact((f"Who is {s.the}?",), f"{s} is {s.is_a}.", s.name, s)
    if s.makes:
        yield _fact(
            (f"What does {s} make?", f"What does {s.the} make?"),
            f"{s} makes {s.makes}.", s.makes, s, f"What does {s.he} make?",
        )  # fmt: skip
        yield _fact((f"Who makes {s.makes}?",), f"{s} makes {s.makes}.", s.name, s)


def _yes_and_no(s: Someone, other: Someone) -> Iterator[Fact]:
    yes, no = f"Yes, {s}", f"No, {s}"
    yield _fact(
        (f"Does {s} like {s.likes}?",), f"{yes} likes {s.likes}.", "yes", s, f"Does {s.he} like {s.likes}?"
    )
    yield _fact(
        (f"Does {s} like {other.likes}?",),
        f"{no} likes {s.likes}.",
        "no",
        s,
        f"Does {s.he} like {other.likes}?",
    )
    yield _fact((f"Is {s} afraid of {s.fears}?",), f"{yes} is afraid of {s.fears}.", "yes", s)
    yield _fact((f"Is {s} afraid of {other.fears}?",), f"{no} is afraid of {s.fears}.", "no", s)
    if other.home is not s.home:
        yield _fact((f"Does {s} live {other.home.lives}?",), f"{no} lives {s.home.lives}.", "no", s)
    yield _fact((f"Does {s} live {s.home.lives}?",), f"{yes} lives {s.home.lives}.", "yes", s)


def listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _of_place(p: Place) -> Iterator[Fact]:
    short = p.where.split(" is ")[-1].split(" stands ")[-1]
    yield Fact((f"Where is {p}?", f"How do I find {p}?"), (p.where,), short[0].upper() + short[1:])
    yield Fact((f"What can I see {p.at}?",), (f"You can see {p.holds} {p.at}.",), p.holds.capitalize() + ".")
    names = [s.name for s in CAST.values() if s.home is p]
    who = listed(names) if names else "Nobody"
    yield Fact(
        (f"Who lives {p.lives}?",), (f"{who} {'live' if len(names) > 1 else 'lives'} {p.lives}.",), who + "."
    )


def _lore() -> Iterator[Fact]:
    for ask, answer, short in LORE:
        yield Fact((ask,), (answer,), short)
    everyone = listed(list(CAST))
    asks = ("Who lives on Lantern Island?", "Who lives on the island?")
    yield Fact(asks, (f"On Lantern Island live {everyone}.",), f"{everyone}.")


# What the answers are drawn from, by kind, so that no kind drowns the others.
PERSONAL = {name: list(_of_someone(s)) for name, s in CAST.items()}
YES_NO = [fact for s in CAST.values() for o in CAST.values() if o is not s for fact in _yes_and_no(s, o)]
LOCAL = [fact for p in PLACES.values() for fact in _of_place(p)]
GENERAL = list(_lore())
