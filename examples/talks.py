"""Conversations about Lantern Island: what a user may say, what the storyteller answers, and in which manner.

The system message sets the manner (one sentence, a few words, like a sailor, a wish for the night); the same
question has an answer in each. What lies outside the island gets an honest "I only know Lantern Island".
"""

from dataclasses import dataclass
from random import Random

from facts import GENERAL, LOCAL, PERSONAL, YES_NO, Fact
from joys import JOYS
from stories import Story, pick, tell
from troubles import TROUBLES
from world import CAST

Message = tuple[str, str]  # role, text
PLOTS = TROUBLES + JOYS


@dataclass(frozen=True, slots=True)
class Manner:
    """How to answer. `length` is a field of Turn; `before` and `after` frame every answer."""

    orders: tuple[str, ...]
    length: str = "full"
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """A question with its answer in every length."""

    ask: str
    full: str
    sentence: str
    words: str


PERSONA = (
    "You are the storyteller of Lantern Island.",
    "You know Lantern Island and tell its stories.",
    "You are a friendly guide to Lantern Island.",
    "",
)

PLAIN = Manner(("", "Tell stories and answer questions.", "Be kind and clear."))
MANNERS = (
    PLAIN,
    Manner(
        ("Answer in one sentence.", "Use one sentence only.", "Keep it to a single sentence."),
        length="sentence",
    ),
    Manner(("Answer in a few words.", "Be very brief.", "Use as few words as you can."), length="words"),
    Manner(
        ("Speak like a sailor.", "Answer like a sailor.", "Talk like an old sailor."),
        before="Aye! ",
        after=" Fair winds!",
    ),
    Manner(("Wish the user a good night.", "End every answer with a good night."), after=" Good night!"),
)

ASK_FOR_STORY = (
    "Tell me a story", "Please tell me a story", "Can you tell me a story", "Write a story",
    "I want to hear a story", "Tell me a short story", "Tell me a bedtime story",
)  # fmt: skip

# What is said around the questions. Each row: ways to say it, the answer, the answer in a few words.
COURTESIES = (
    (("Hello!", "Hi!", "Good morning!", "Hi there.", "Hey."),
     "Hello! Ask me about Lantern Island, or let me tell you a story.", "Hello!"),
    (("Who are you?", "What is your name?", "What are you?"),
     "I am the storyteller of Lantern Island.", "The storyteller."),
    (("What can you do?", "Help", "How can you help me?", "What do you know?"),
     "I can tell you a story, or answer a question about Lantern Island.", "Tell stories."),
    (("How are you?", "How are you today?"),
     "I am well, thank you, as long as the great lamp is lit.", "Well."),
    (("Tell me a joke.", "Make me laugh."),
     "Why does Bramble eat hats? Because she has finished the scarves.", "Bramble."),
    (("Sing me a song.", "Tell me a poem.", "Write a poem."),
     "The lamp is lit, the boats are in, the gull is on the wall, "
     "and Otto bakes his honey buns for great ones and for small.",
     "The lamp is lit."),
    (("What is Lantern Island?", "Tell me about the island.", "Tell me about Lantern Island."),
     "Lantern Island is a small island with a lighthouse, a bakery, a school, six yellow hives "
     "and one hungry goat.",
     "A small island."),
)  # fmt: skip
THANKS = (("Thank you!", "Thanks.", "Thank you very much.", "That was nice."),
          "You are welcome. Come back soon.", "You are welcome.")  # fmt: skip
FAREWELL = (("Good night.", "Goodbye!", "Bye."), "Goodbye, and mind the goat.", "Goodbye.")

STRANGE = (
    "What is the capital of {x}?", "Who is {x}?", "What is {x}?", "How do I {x}?",
    "Write a program that {x}.", "Who won the {x}?", "What is {n} plus {n}?", "Translate {x}.",
    "Tell me about {x}.", "Where is {x}?", "How old is {x}?",
    "Explain {x} to me.", "What does {x} mean?", "{x}", "{x} {x}?", "Where does {x} live?",
    "Tell me a story about {x}.", "What does {x} like?",
)  # fmt: skip
STRANGE_WORDS = (
    "France", "the moon", "Paris", "London", "the world cup", "a computer", "Python", "the internet",
    "physics", "a car", "New York", "quantum mechanics", "the president", "football", "money", "my homework",
    "cook pasta", "sorts a list", "a dinosaur", "Shakespeare", "the news", "history", "music",
    "machine learning", "China", "a robot", "Mars", "Germany", "Alice", "Bob", "John", "chess", "a dragon",
    "the king", "make a website",
)  # fmt: skip
# First and last code point: printable ASCII, Latin, Greek and Cyrillic, kana, Chinese, pictures.
ALPHABETS = (
    (0x21, 0x7E), (0xA1, 0x17F), (0x391, 0x44F), (0x3041, 0x30FF), (0x4E00, 0x9FFF), (0x1F300, 0x1F64F),
)  # fmt: skip
NEXT = (
    ("What happened next?", "And then?", "Go on."),
    "Then they all went home, and Marta lit the great lamp.",
    "They went home.",
)


def conversation(rng: Random, turns: int) -> list[Message]:
    """A system message or none, then `turns` questions with their answers."""
    manner = PLAIN if rng.random() < 0.55 else rng.choice(MANNERS)
    system = f"{pick(rng, PERSONA)} {pick(rng, manner.orders)}".strip()
    messages = [("system", system)] if system else []
    for turn in _turns(rng, turns):
        said = getattr(turn, manner.length)
        messages += [("user", _typed(rng, turn.ask)), ("assistant", manner.before + said + manner.after)]
    return messages


def _turns(rng: Random, count: int) -> list[Turn]:
    turns: list[Turn] = []
    if rng.random() < 0.07:
        turns.append(_small_talk(rng, COURTESIES[0]))
    while len(turns) < count:
        room = count - len(turns)
        kind = rng.choices((_story, _questions, _courtesy, _strange), (30, 54, 6, 10))[0]
        turns += kind(rng)[:room]
    if count > 1 and rng.random() < 0.15:
        turns[-1] = _small_talk(rng, rng.choice((THANKS, FAREWELL)))
    return turns


def _story(rng: Random) -> list[Turn]:
    """A story, questions about it, and perhaps what happened next."""
    story = tell(rng, rng.choice(PLOTS))
    words = f"{story.names[0]}, {story.names[1]} and a happy end."
    turns = [Turn(_asked(rng, story), story.text, story.summary, words)]
    asked = rng.sample(story.questions, rng.randint(0, len(story.questions) - 1))
    turns += [Turn(ask, full, full, short) for ask, full, short in asked]
    if rng.random() < 0.06:
        turns.append(Turn(rng.choice(NEXT[0]), NEXT[1], NEXT[1], NEXT[2]))
    return turns


def _asked(rng: Random, story: Story) -> str:
    """A request that the story fulfils: for its plot, its people, its weather, or for any story at all."""
    topics = [story.names[0], f"{story.names[0]} and {story.names[1]}", story.names[1]]
    if story.weather:
        topics += [f"{story.names[0]} and {story.weather}", story.weather]
    kind = rng.random()
    if kind < 0.35:
        return story.request
    start = pick(rng, ASK_FOR_STORY)
    return f"{start}." if kind < 0.5 else f"{start} about {rng.choice(topics)}."


def _questions(rng: Random) -> list[Turn]:
    """One question, or several about the same someone, who is then only he or she."""
    kind = rng.random()
    if kind < 0.6:
        facts = PERSONAL[rng.choice(list(CAST))]
        first, *more = rng.sample(facts, 3)
        return [_answered(rng, first), *(_answered(rng, fact, on=True) for fact in more if fact.asks_on)]
    return [_answered(rng, rng.choice(YES_NO if kind < 0.75 else LOCAL if kind < 0.87 else GENERAL))]


def _answered(rng: Random, fact: Fact, on: bool = False) -> Turn:
    full = pick(rng, fact.answers)
    one = full.split(". ")[0].rstrip(".") + "."
    return Turn(pick(rng, fact.asks_on if on else fact.asks), full, one, fact.short)


def _courtesy(rng: Random) -> list[Turn]:
    return [_small_talk(rng, rng.choice(COURTESIES))]


def _small_talk(rng: Random, row: tuple[tuple[str, ...], str, str]) -> Turn:
    asks, answer, words = row
    return Turn(pick(rng, asks), answer, answer, words)


def _strange(rng: Random) -> list[Turn]:
    ask = rng.choice(STRANGE).format(x=_unknown(rng), n=rng.randint(0, 99))
    answer = "I only know Lantern Island. Ask me about Marta or Pip."
    return [Turn(ask, answer, "I only know Lantern Island.", "I do not know.")]


def _unknown(rng: Random) -> str:
    """Something the storyteller cannot know: the outside world, a made-up word, or odd characters."""
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(STRANGE_WORDS)
    if kind < 0.85:
        word = "".join(
            rng.choice("bcdfghklmnprstvwz") + rng.choice("aeiou") for _ in range(rng.randint(2, 4))
        )
        return word.capitalize() if rng.random() < 0.5 else word
    return "".join(chr(rng.randint(*rng.choice(ALPHABETS))) for _ in range(rng.randint(2, 6)))


def _typed(rng: Random, ask: str) -> str:
    """As people type: now and then without capitals or the last stop."""
    if rng.random() < 0.1:
        ask = ask.lower()
    return ask.rstrip(".?!") if rng.random() < 0.1 else ask
