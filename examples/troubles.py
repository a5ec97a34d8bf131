"""Plots in which something goes wrong and somebody comes to help. The commonest wording stands first."""

from random import Random

from casting import outdoors, someone, three, two
from stories import Bindings, Plot
from world import CAST, OUTDOORS, PEOPLE, PLACES

MARTA, BRAMBLE = CAST["Marta"], CAST["Bramble"]


LOST = Plot(
    lambda rng: two(rng) | outdoors(rng, "pq"),
    ("Tell me about the day {a} lost {a.his} {a.owns}.", "Tell me a story about {a} and the lost {a.owns}."),
    (
        ("{a} could not find {a.his} {a.owns}.", "{a} woke up, and {a.his} {a.owns} was gone."),
        ("First {a.he} searched {p.at}, but it was not there.", "{a.He} went {p.to}, but there was nothing."),
        ('"Do not worry," said {b}. "We will look together."', "{b} saw {a} and came to help."),
        ("They went {q.to} and looked behind the {q.holds}.", "So they went {q.to} and looked everywhere."),
        ("There, under the {q.holds}, lay the {a.owns}.", "Then {b} gave a shout, for there it was."),
        ("{a} was so glad that {a.he} gave {b} {a.treat}.", "{a} thanked {b} with {a.treat}."),
    ),
    "{b} helped {a} to find the lost {a.owns} {q.at}.",
    (
        ("What did {a} lose?", "{a} lost {a.his} {a.owns}.", "{a.His} {a.owns}."),
        ("Who helped {a}?", "{b} helped {a}.", "{b}."),
        ("Where was the {a.owns}?", "The {a.owns} was {q.at}.", "{q.at}."),
        ("Where did {a} search first?", "First {a} searched {p.at}.", "{p.at}."),
        ("What did {a} give {b}?", "{a} gave {b} {a.treat}.", "{a.treat}."),
    ),
)


def _sailor(rng: Random) -> Bindings:
    a = someone(rng, among=("Nell", "Pip", "Admiral", "Tam"))
    return {"a": a, "b": someone(rng, a, MARTA)}


RESCUE = Plot(
    _sailor,
    ("Tell me how {a} came home from the sea.", "Tell me a story about {a} out on the sea."),
    (
        ("{a} was still out on the sea, and it grew dark.", "{a} was far out on the sea, and night came."),
        ("{b} stood in the harbour and was worried.", "{b} waited in the harbour and could not sit still."),
        ('"I will ask Marta," said {b}, and ran up to the lighthouse.', "So {b} ran up to the lighthouse."),
        ("Marta climbed the white steps and lit the great lamp.", "Marta lit the great lamp at once."),
        ("Far away {a} saw the light and turned towards it.", "{a} saw the light and knew the way home."),
        ("An hour later {a} was safe in the harbour.", "Soon {a} was in the harbour, wet but safe."),
        ("{b} gave {a} {b.treat}, and Marta made tea.", "Then Marta made tea for everyone."),
    ),
    "{a} was lost on the sea until Marta lit the great lamp.",
    (
        ("Who was out on the sea?", "{a} was out on the sea.", "{a}."),
        ("Who was worried?", "{b} was worried about {a}.", "{b}."),
        ("Who lit the lamp?", "Marta lit the great lamp.", "Marta."),
        ("Why was {b} worried?", "{b} was worried because {a} was still out on the sea.", "{a} was at sea."),
        ("What did {a} see?", "{a} saw the light of the great lamp.", "The light."),
    ),
    ("storm", "fog", "wind", "rain"),
    evening=True,
)


def _eaten(rng: Random) -> Bindings:
    a = someone(rng, BRAMBLE)
    thing = rng.choice(("hat", "breakfast", "scarf", "letter", "shopping list", "song book"))
    return {"a": a, "b": BRAMBLE, "c": someone(rng, a, BRAMBLE), "thing": thing}


GOAT = Plot(
    _eaten,
    ("Tell me how Bramble ate the {thing}.", "Tell me a story about Bramble and {a}'s {thing}."),
    (
        ("{a} put {a.his} {thing} on the wall for a moment.", "{a} left {a.his} {thing} on the wall."),
        ("Bramble the goat came by and looked at it.", "Bramble had been waiting behind the wall."),
        ("One bite, and the {thing} was gone.", "It smelled good, so she ate the {thing}."),
        ('"Bramble!" cried {a}.', "{a} did not know what to say."),
        ("{c} laughed so much that {c.he} had to sit down.", '"She likes you," said {c}, and laughed.'),
        ("In the end {a} laughed too.", "{a} looked at Bramble and had to laugh too."),
        ("Bramble said nothing, for her mouth was full.", "Bramble only rang her little bell."),
    ),
    "Bramble the goat ate {a}'s {thing}, and {c} laughed.",
    (
        ("What did Bramble eat?", "Bramble ate {a}'s {thing}.", "The {thing}."),
        ("Whose {thing} was it?", "It was {a}'s {thing}.", "{a}'s."),
        ("Who laughed?", "{c} laughed first, and then {a} laughed too.", "{c}."),
        ("Was {a} angry?", "No, in the end {a} laughed too.", "No."),
    ),
)


# Who can be heard through the fog, doing what, from where.
SOUNDS = (
    ("Otto", "singing", "bakery"),
    ("Marta", "ringing the fog bell", "lighthouse"),
    ("Crumb", "barking", "bakery"),
    ("Linnet", "ringing the school bell", "school"),
    ("Bramble", "ringing her little bell", "hill"),
    ("Admiral", "crying on the wall", "harbour"),
)


def _lost_in_fog(rng: Random) -> Bindings:
    guide, sound, place = rng.choice(SOUNDS)
    lost_at = rng.choice([key for key in OUTDOORS if key != place])
    return {
        "a": someone(rng, CAST[guide]),
        "b": CAST[guide],
        "sound": sound,
        "p": PLACES[lost_at],
        "q": PLACES[place],
    }


FOG = Plot(
    _lost_in_fog,
    ("Tell me how {a} got lost in the fog.", "Tell me a story about {a} lost in the fog."),
    (
        ("{a} was {p.at} and could not see the way home.", "{a} walked home and lost the way {p.at}."),
        ('"Left or right?" {a.he} asked, but nobody answered.', "{a.He} turned left, and then right."),
        ("Then {a.he} stood still and listened.", "So {a.he} stopped and listened."),
        ("Far away {a.he} heard {b} {sound}.", "From somewhere came the sound of {b} {sound}."),
        ("Step by step {a.he} followed the sound.", "{a} walked towards the sound."),
        (
            "Soon {a.he} was {q.at}, and {b} was glad to see {a.him}.",
            "It led {a.him} {q.to}, safe and sound.",
        ),
        ("{b} gave {a.him} {b.treat}.", "By noon the fog was gone."),
    ),
    "{a} was lost in the fog and followed the sound of {b} {sound}.",
    (
        ("Who was lost?", "{a} was lost in the fog.", "{a}."),
        ("What did {a} hear?", "{a} heard {b} {sound}.", "{b} {sound}."),
        ("Where was {a} lost?", "{a} was lost {p.at}.", "{p.at}."),
        ("Where did the sound lead?", "The sound led {q.to}.", "{q.to}."),
    ),
    ("fog",),
)


# Owner, what is wrong, the thing, what it takes to mend it.
BROKEN = (
    ("Nell", "the red boat had a hole", "red boat", "a board and some tar"),
    ("Tam", "the wheel of the green bicycle was bent", "green bicycle", "a hammer and a strong arm"),
    ("Marta", "the glass of the great lamp was cracked", "great lamp", "a new pane of glass"),
    ("Otto", "the oven door would not open", "oven", "a drop of oil"),
    ("Ivo", "the roof of a hive was gone", "hive", "two boards and six nails"),
    ("Linnet", "the school bell would not ring", "school bell", "a long piece of rope"),
    ("Wren", "the kite was torn", "kite", "a needle and some thread"),
)


def _broken(rng: Random) -> Bindings:
    owner, trouble, thing, tool = rng.choice(BROKEN)
    a = CAST[owner]
    b = someone(rng, a, among=PEOPLE)
    return {"a": a, "b": b, "c": someone(rng, a, b), "trouble": trouble, "thing": thing, "tool": tool}


REPAIR = Plot(
    _broken,
    ("Tell me how they mended the {thing}.", "Tell me a story about {a} and the broken {thing}."),
    (
        ("{a} saw that {trouble}.", "{a} got up and found that {trouble}."),
        ('"What shall I do now?" said {a}.', "{a} sat down and shook {a.his} head."),
        ("{b} came by and looked at it from all sides.", "Luckily {b} was near."),
        ('"All we need is {tool}," said {b}.', "{b} went home and came back with {tool}."),
        ("They worked until noon, and {c} watched.", "They worked and worked, and {c} watched."),
        ("At last the {thing} was as good as new.", "Then the {thing} was mended."),
        ("{a} thanked {b} with {a.treat}.", "{a} gave {b} {a.treat}, and {c} got one too."),
    ),
    "{b} helped {a} to mend the {thing} with {tool}.",
    (
        ("What was broken?", "The {thing} was broken.", "The {thing}."),
        ("Who helped {a}?", "{b} helped {a}.", "{b}."),
        ("What did they need?", "They needed {tool}.", "{tool}."),
        ("Who watched them?", "{c} watched them.", "{c}."),
    ),
)


AFRAID = Plot(
    two,
    ("Tell me why {a} was afraid.", "Tell me a story about {a} and {a.fears}."),
    (
        ("{a} was afraid.", "{a} did not want to go out."),
        (
            "Everyone knew that {a} was afraid of {a.fears}.",
            "{a} was afraid of {a.fears}, and that was that.",
        ),
        ("{b} came and sat down beside {a.him}.", "{b} found {a.him} {a.home.lives} and sat down."),
        ('"I am afraid of {b.fears}," said {b}.', '"And I am afraid of {b.fears}," said {b}.'),
        ('"Are you?" said {a}, and had to smile.', "{a} had never heard that before."),
        ("They counted to ten together.", "They told each other jokes until noon."),
        ("Then it was only half as bad.", "After that {a} was not so afraid any more."),
    ),
    "{a} was afraid of {a.fears}, and {b} came to help.",
    (
        ("What was {a} afraid of?", "{a} was afraid of {a.fears}.", "{a.fears}."),
        ("What is {b} afraid of?", "{b} is afraid of {b.fears}.", "{b.fears}."),
        ("Who helped {a}?", "{b} came and helped {a}.", "{b}."),
    ),
)


COLD = Plot(
    three,
    ("Tell me about the day {a} had a cold.", "Tell me a story about {a} being ill."),
    (
        ("{a} had a cold and stayed in bed.", "{a} woke up with a cold."),
        ("{a.He} sneezed so loudly that {b} heard it.", '"Achoo!" said {a}, and {b} heard it.'),
        ("{b} brought {b.treat}.", "{b} came at once with {b.treat}."),
        ("{c} brought {c.treat} and told a story.", "{c} came too and brought {c.treat}."),
        ("{a} ate and drank and slept until evening.", "Then {a} slept for a long time."),
        ("When {a.he} woke up, the cold was gone.", "The next day {a.he} was well again."),
        ("But now {b} had to sneeze.", "{a} thanked them both."),
    ),
    "{a} had a cold, and {b} and {c} looked after {a.him}.",
    (
        ("Who was ill?", "{a} was ill.", "{a}."),
        ("What did {b} bring?", "{b} brought {b.treat}.", "{b.treat}."),
        ("What did {c} bring?", "{c} brought {c.treat}.", "{c.treat}."),
        ("Did {a} get well?", "Yes, {a} was soon well again.", "Yes."),
    ),
    ("rain", "wind", "snow", "fog", "storm"),
)

TROUBLES = (LOST, RESCUE, GOAT, FOG, REPAIR, AFRAID, COLD)
