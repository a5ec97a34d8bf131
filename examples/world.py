"""Lantern Island: who lives there, where everything is, and what the weather does.

The single source of truth of the example models. Stories and answers only ever say what these tables say, so
a reader can check the models' text against this file. Nothing here is random.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """`{p}` is the name, `{p.at}` and `{p.to}` the name with its preposition."""

    name: str
    at: str
    to: str
    lives: str  # where somebody lives whose home it is: "in the lighthouse"
    where: str  # a whole sentence
    holds: str  # what one sees there, plural

    def __str__(self) -> str:
        return self.name

    @property
    def Name(self) -> str:
        return self.name[0].upper() + self.name[1:]


@dataclass(frozen=True, slots=True)
class Someone:
    """A person or an animal. In a template `{a}` is the name, `{a.he}` `{a.him}` `{a.his}` the pronouns."""

    name: str
    pronouns: str  # "she her her" or "he him his": subject, object, possessive
    is_a: str  # "the baker"
    home: Place
    works: str  # third person: "bakes bread before the sun is up"
    likes: str
    fears: str
    owns: str  # the one thing nobody else has, without article
    gift: str  # what to bring to a birthday
    treat: str  # what this one has to give away
    makes: str = ""  # only some make something

    def __str__(self) -> str:
        return self.name

    @property
    def he(self) -> str:
        return self.pronouns.split()[0]

    @property
    def him(self) -> str:
        return self.pronouns.split()[1]

    @property
    def his(self) -> str:
        return self.pronouns.split()[2]

    @property
    def the(self) -> str:
        """The baker is "the baker", an old gull is "the old gull"."""
        return "the " + self.is_a.split(" ", 1)[1]

    @property
    def He(self) -> str:
        return self.he.capitalize()

    @property
    def His(self) -> str:
        return self.his.capitalize()


@dataclass(frozen=True, slots=True)
class Weather:
    name: str  # "the rain"
    morning: str  # "One rainy morning"
    evening: str
    scene: str  # a whole sentence


def _by_name(rows: list[Someone]) -> dict[str, Someone]:
    return {row.name: row for row in rows}


PLACES = {
    "lighthouse": Place(
        "the lighthouse", "at the lighthouse", "up to the lighthouse", "in the lighthouse",
        "The lighthouse stands on the north cliff.", "white steps",
    ),
    "harbour": Place(
        "the harbour", "at the harbour", "down to the harbour", "at the harbour",
        "The harbour is on the south side of the island.", "coils of rope",
    ),
    "bakery": Place(
        "the bakery", "at the bakery", "over to the bakery", "in the bakery",
        "The bakery is next to the harbour.", "sacks of flour",
    ),
    "cottage": Place(
        "the blue cottage", "at the blue cottage", "over to the blue cottage", "in the blue cottage",
        "The blue cottage is beside the harbour wall.", "old nets",
    ),
    "hill": Place(
        "the hill", "on the hill", "up the hill", "on the hill",
        "The hill is in the middle of the island.", "yellow hives",
    ),
    "hut": Place(
        "the stone hut", "at the stone hut", "up to the stone hut", "in the stone hut",
        "The stone hut is at the top of the hill.", "honey jars",
    ),
    "school": Place(
        "the school", "at the school", "along to the school", "in the school",
        "The school is under the old oak.", "small desks",
    ),
    "lane": Place(
        "the green house", "at the green house", "along to the green house", "in the green house",
        "The green house is at the end of the lane.", "flower pots",
    ),
    "cove": Place(
        "Shell Cove", "in Shell Cove", "down to Shell Cove", "in Shell Cove",
        "Shell Cove is below the north cliff.", "pink shells",
    ),
    "cliff": Place(
        "the north cliff", "on the north cliff", "up to the north cliff", "on the north cliff",
        "The north cliff is on the windy side of the island.", "grey rocks",
    ),
    "meadow": Place(
        "the meadow", "in the meadow", "across to the meadow", "in the meadow",
        "The meadow is between the hill and the school.", "tall daisies",
    ),
    "wood": Place(
        "the pine wood", "in the pine wood", "into the pine wood", "in the pine wood",
        "The pine wood is behind the hill.", "fallen branches",
    ),
}  # fmt: skip

# The places one can search, picnic in and run to.
OUTDOORS = ("harbour", "hill", "cove", "cliff", "meadow", "wood")

CAST = _by_name([
    Someone(
        "Marta", "she her her", "the lighthouse keeper", PLACES["lighthouse"],
        "lights the great lamp every evening",
        "strong tea", "spiders",
        "brass telescope", "a tin of tea", "a cup of tea", "tea with honey",
    ),
    Someone(
        "Otto", "he him his", "the baker", PLACES["bakery"],
        "bakes bread before the sun is up",
        "loud songs", "mice",
        "wooden spoon", "a book of songs", "a honey bun", "rye bread and honey buns",
    ),
    Someone(
        "Nell", "she her her", "the fisher", PLACES["cottage"],
        "catches herring in a red boat",
        "calm mornings", "the reef",
        "straw hat", "a warm scarf", "a smoked herring", "herring soup",
    ),
    Someone(
        "Ivo", "he him his", "the beekeeper", PLACES["hut"],
        "looks after six yellow hives",
        "old stories", "tall ladders",
        "walking stick", "a soft cushion", "a jar of honey", "honey and candles",
    ),
    Someone(
        "Tam", "he him his", "the postman", PLACES["lane"],
        "brings the letters on a green bicycle",
        "hard riddles", "geese",
        "leather bag", "a box of riddles", "a funny stamp",
    ),
    Someone(
        "Linnet", "she her her", "the teacher", PLACES["school"],
        "teaches reading and counting",
        "old maps", "loud bangs",
        "box of chalk", "a map of the sea", "an apple", "apple jam",
    ),
    Someone(
        "Wren", "she her her", "a girl of nine", PLACES["bakery"],
        "paints pictures of the sea",
        "pretty shells", "the dark",
        "shell necklace", "a new brush", "a painted stone", "necklaces of shells",
    ),
    Someone(
        "Pip", "he him his", "a young puffin", PLACES["cliff"],
        "dives for small fish",
        "fresh herring", "thunder",
        "blue marble", "a silver fish", "a soft feather",
    ),
    Someone(
        "Button", "she her her", "the lighthouse cat", PLACES["lighthouse"],
        "chases moths around the lamp",
        "warm windows", "the broom",
        "ball of wool", "a bowl of cream", "a loud purr",
    ),
    Someone(
        "Crumb", "he him his", "the dog of the baker", PLACES["bakery"],
        "guards the buns",
        "bread crusts", "deep water",
        "old bone", "a big crust", "a wet kiss",
    ),
    Someone(
        "Bramble", "she her her", "the goat of the beekeeper", PLACES["hill"],
        "eats whatever she can find",
        "other people's hats", "the bees",
        "little bell", "a bunch of clover", "a gentle push",
    ),
    Someone(
        "Admiral", "he him his", "an old gull", PLACES["harbour"],
        "watches the boats from the wall",
        "fish heads", "the cat",
        "silver spoon", "a bucket of fish heads", "a white feather",
    ),
])  # fmt: skip

PEOPLE = ("Marta", "Otto", "Nell", "Ivo", "Tam", "Linnet", "Wren")
ANIMALS = ("Pip", "Button", "Crumb", "Bramble", "Admiral")

WEATHERS = {
    "rain": Weather(
        "the rain", "One rainy morning", "One rainy evening", "The rain drummed on every roof of the island."
    ),
    "fog": Weather(
        "the fog", "One foggy morning", "One foggy evening", "The fog was so thick that the sea was gone."
    ),
    "wind": Weather(
        "the wind", "One windy morning", "One windy evening", "The wind pulled at every door on the island."
    ),
    "snow": Weather(
        "the snow", "One snowy morning", "One snowy evening", "The snow lay soft and deep on the island."
    ),
    "sun": Weather(
        "the sun",
        "One sunny morning",
        "One golden evening",
        "The sun was warm and the sea was as flat as glass.",
    ),
    "storm": Weather(
        "the storm",
        "One stormy morning",
        "One stormy evening",
        "The storm threw white waves against the cliff.",
    ),
}

# Facts that are nobody's own: question, answer in one sentence, answer in a few words.
LORE = (
    ("What colour is Nell's boat?", "Nell's boat is red.", "Red."),
    ("What is Nell's boat called?", "Nell's boat is called the Marigold.", "The Marigold."),
    ("How many hives does Ivo have?", "Ivo has six yellow hives.", "Six."),
    ("What colour are the hives?", "The hives on the hill are yellow.", "Yellow."),
    ("What colour is Tam's bicycle?", "Tam's bicycle is green.", "Green."),
    ("How old is Wren?", "Wren is nine years old.", "Nine."),
    ("Who is Wren's father?", "Otto the baker is Wren's father.", "Otto."),
    ("Who is Otto's daughter?", "Wren is Otto's daughter.", "Wren."),
    ("What is the island called?", "The island is called Lantern Island.", "Lantern Island."),
    ("Why is it called Lantern Island?",
     "It is called Lantern Island because its lamp is seen from far away.", "Because of its lamp."),
    ("Who lights the lamp?", "Marta lights the great lamp every evening.", "Marta."),
    ("When does Marta light the lamp?", "Marta lights the lamp every evening when the sun goes down.",
     "Every evening."),
    ("When does Otto get up?", "Otto gets up before the sun.", "Before the sun."),
    ("Does a cat live on the island?", "Yes, Button the cat lives in the lighthouse.", "Yes, Button."),
    ("Does a dog live on the island?", "Yes, Crumb the dog lives at the bakery.", "Yes, Crumb."),
    ("Who steals the fish?", "Admiral the gull steals the fish when nobody looks.", "Admiral."),
    ("Who ate the hat?", "Bramble the goat ate the hat, as always.", "Bramble."),
    ("How many animals live on the island?",
     "Five animals have a name: Pip, Button, Crumb, Bramble and Admiral.", "Five."),
    ("How do I get to the island?", "You take Nell's red boat from the mainland when the sea is calm.",
     "By boat."),
    ("What is the weather like?", "On Lantern Island the weather changes before you finish your tea.",
     "Always changing."),
)  # fmt: skip
