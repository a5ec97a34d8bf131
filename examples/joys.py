"""Plots in which something good happens. The commonest wording stands first."""

from random import Random

from casting import outdoors, someone, three, two
from stories import Bindings, Plot
from world import CAST, PLACES

TAM = CAST["Tam"]


BIRTHDAY = Plot(
    three,
    ("Tell me about {b}'s birthday.", "Tell me a story about {a} and a present for {b}."),
    (
        ("it was {b}'s birthday, and {a} had no present.", "{a} wanted to find a present for {b}."),
        ("{a} knew that {b} liked {b.likes}.", "Everyone knew that {b} liked {b.likes}."),
        ('"What can I give to {b}?" {a} asked {c}.', "So {a} went to ask {c}."),
        ('"Give {b.him} {b.gift}," said {c}.', '"I know," said {c}. "Give {b.him} {b.gift}."'),
        ("They wrapped it in brown paper.", "They got it ready before noon."),
        ("When {b} saw {b.gift}, {b.he} was very happy.", "{b} opened it and was very happy."),
        ("Then they all ate honey buns.", "Otto brought honey buns, and everyone sang."),
    ),
    "{a} gave {b} {b.gift} for {b.his} birthday.",
    (
        ("Whose birthday was it?", "It was {b}'s birthday.", "{b}'s."),
        ("What did {b} get?", "{b} got {b.gift}.", "{b.gift}."),
        ("Who helped {a}?", "{c} helped {a}.", "{c}."),
        ("What did they eat?", "They ate honey buns.", "Honey buns."),
    ),
)


def _hosts(rng: Random) -> Bindings:
    a, b = (CAST[name] for name in rng.sample(("Otto", "Marta", "Nell", "Ivo", "Linnet"), 2))
    return {"a": a, "b": b, "c": someone(rng, a, b)} | outdoors(rng, "p")


PICNIC = Plot(
    _hosts,
    ("Tell me a story about a picnic.", "Tell me about the picnic of {a} and {b}."),
    (
        ("{a} and {b} had a picnic {p.at}.", "{a} wanted to have a picnic {p.at}, and {b} came too."),
        (
            "{a} brought {a.treat}, and {b} brought {b.treat}.",
            "{b} brought {b.treat}, {a} brought {a.treat}.",
        ),
        ("They sat down between the {p.holds}.", "They found a good place near the {p.holds}."),
        ("{c} came by and looked hungry.", "After a while {c} came along."),
        ('"There is enough for three," said {a}.', '"Come and sit with us," said {b}.'),
        ("They ate and talked until the sun went down.", "They ate it all and watched the clouds."),
    ),
    "{a} and {b} had a picnic {p.at} and shared it with {c}.",
    (
        ("Where was the picnic?", "The picnic was {p.at}.", "{p.at}."),
        ("What did {a} bring?", "{a} brought {a.treat}.", "{a.treat}."),
        ("What did {b} bring?", "{b} brought {b.treat}.", "{b.treat}."),
        ("Who came by?", "{c} came by.", "{c}."),
    ),
    ("sun", "wind"),
)


def _letter(rng: Random) -> Bindings:
    a = someone(rng, TAM)
    event, at = rng.choice((("supper", "lighthouse"), ("tea", "hut"), ("a song evening", "bakery"),
                            ("a race", "meadow"), ("a day of games", "school")))  # fmt: skip
    return {"a": a, "b": someone(rng, a, TAM), "c": TAM, "event": event, "p": PLACES[at]}


LETTER = Plot(
    _letter,
    ("Tell me a story about a letter for {b}.", "Tell me about the letter that Tam brought."),
    (
        ("Tam came on his green bicycle with a letter.", "Tam the postman had a letter in his leather bag."),
        ('"This one is for {b}," he said.', "It was a letter for {b}."),
        ("It was from {a}.", "{b} opened it and saw that it was from {a}."),
        ('"Come to {event} {p.at}," it said.', 'In it stood: "Come to {event} {p.at}."'),
        ("{b} was so happy that {b.he} gave Tam {b.treat}.", "{b} read it twice and gave Tam {b.treat}."),
        ("In the evening they all met {p.at}.", "So they all went {p.to}."),
        ("{a} said that it was the best evening of the year.", "They laughed and talked until late."),
    ),
    "Tam brought a letter from {a}, and {b} came to {event} {p.at}.",
    (
        ("Who got the letter?", "{b} got the letter.", "{b}."),
        ("Who was the letter from?", "The letter was from {a}.", "{a}."),
        ("Who brought the letter?", "Tam the postman brought the letter.", "Tam."),
        ("Where did they meet?", "They met {p.at}.", "{p.at}."),
    ),
)


RACE = Plot(
    lambda rng: three(rng) | outdoors(rng, "pq"),
    ("Tell me about the race of {a} and {b}.", "Tell me a story about a race."),
    (
        ('"I am faster than you," said {a} to {b}.', "{a} and {b} wanted to know who was faster."),
        ("So they ran from {p} to {q}.", "They agreed to run from {p} to {q}."),
        ('{c} counted: "One, two, three!"', "{c} gave the sign."),
        ("At first {a} was ahead.", "{a} ran like the wind."),
        ("But near the {q.holds} {a} fell over a stone.", "Then {a} stopped to look at the {q.holds}."),
        ("{b} could have won, but {b.he} stopped and helped {a}.", "{b} came back and took {a} along."),
        ("They reached {q} together, and {c} said that both had won.", "So both came in first."),
    ),
    "{a} and {b} ran a race from {p} to {q}, and both won.",
    (
        ("Who won the race?", "{a} and {b} both won the race.", "Both."),
        ("Where did they start?", "They started at {p}.", "At {p}."),
        ("Where did the race end?", "The race ended at {q}.", "At {q}."),
        ("Who was faster at first?", "At first {a} was faster.", "{a}."),
    ),
)


def _found(rng: Random) -> Bindings:
    thing = rng.choice(("an old coin", "a green bottle", "a glass ball", "a wooden whale", "a small key"))
    return three(rng) | outdoors(rng, "p") | {"thing": thing, "the": "the " + thing.split(" ", 1)[1]}


FOUND = Plot(
    _found,
    ("Tell me how {a} found {thing}.", "Tell me a story about {a} and {thing}."),
    (
        ("{a} found {thing} {p.at}.", "{a} was {p.at} and found {thing}."),
        ("It lay between the {p.holds}.", "It lay under the {p.holds} and shone a little."),
        ('"Whose is it?" {a.he} asked {b}.', "{a} showed it to {b}."),
        ('"I think it belongs to {c}," said {b}.', "{b} thought that it belonged to {c}."),
        ("So they took it to {c}.", "They went to find {c}."),
        ('"I lost {the} long ago," said {c}.', "{c} was so happy that {c.he} danced."),
        ("{c} gave each of them {c.treat}.", "{c} thanked them both with {c.treat}."),
    ),
    "{a} found {thing} {p.at}, and it belonged to {c}.",
    (
        ("What did {a} find?", "{a} found {thing}.", "{thing}."),
        ("Where did {a} find it?", "{a} found it {p.at}.", "{p.at}."),
        ("Whose was it?", "It belonged to {c}.", "{c}'s."),
        ("Whom did {a} ask?", "{a} asked {b}.", "{b}."),
    ),
)


STARS = Plot(
    lambda rng: two(rng) | outdoors(rng, "p"),
    ("Tell me a story about {a} and the stars.", "Tell me how {a} and {b} saw a falling star."),
    (
        ("{a} could not sleep.", "{a} lay awake and looked at the ceiling."),
        ("So {a.he} went {p.to} to look at the sky.", "{a.He} got up and went {p.to}."),
        ("{b} was already there.", "There sat {b}, looking up."),
        ('"How many stars are there?" asked {a}.', "They tried to count the stars."),
        ('"More than fish in the sea," said {b}.', "{b} stopped at a hundred."),
        ("Then a star fell into the sea, and each made a wish.", "Just then they saw a falling star."),
        ("{a} wished for {a.likes}, and {b} wished for {b.likes}.", "{a} wished for {a.likes}."),
    ),
    "{a} and {b} sat {p.at} and saw a falling star.",
    (
        ("Where did they sit?", "They sat {p.at}.", "{p.at}."),
        ("What did {a} wish for?", "{a} wished for {a.likes}.", "{a.likes}."),
        ("Who was already there?", "{b} was already there.", "{b}."),
        ("What did they see?", "They saw a falling star.", "A falling star."),
    ),
    ("sun", "wind", "snow"),
    evening=True,
)


def _small_guest(rng: Random) -> Bindings:
    guest, food = rng.choice(
        (("seal", "fish"), ("duckling", "bread"), ("lamb", "milk"), ("hedgehog", "apples"))
    )
    return two(rng) | outdoors(rng, "p") | {"guest": guest, "food": food}


GUEST = Plot(
    _small_guest,
    ("Tell me a story about a little {guest}.", "Tell me how {a} found a little {guest}."),
    (
        ("{a} heard a small voice {p.at}.", "{a} was {p.at} and heard a small voice."),
        ("Behind the {p.holds} sat a little {guest}.", "It was a little {guest}, all alone."),
        ('"Are you hungry?" asked {a}.', "The {guest} looked at {a} with big eyes."),
        ("{b} came with {food}, and the {guest} ate and ate.", "{b} ran home and brought {food}."),
        ("They kept it warm all day.", "{a} and {b} sat beside it all day."),
        ("In the evening its mother came and called.", "When the sun went down, its mother came."),
        (
            "The little {guest} turned around once more, and then it was gone.",
            "The {guest} went home with her.",
        ),
    ),
    "{a} and {b} looked after a little {guest} until its mother came.",
    (
        ("What did {a} find?", "{a} found a little {guest}.", "A little {guest}."),
        ("What did the {guest} eat?", "The {guest} ate {food}.", "{food}."),
        ("Who brought the {food}?", "{b} brought the {food}.", "{b}."),
        ("Where was the {guest}?", "The {guest} was {p.at}.", "{p.at}."),
        ("Who came in the evening?", "The mother of the {guest} came.", "Its mother."),
    ),
)

JOYS = (BIRTHDAY, PICNIC, LETTER, RACE, FOUND, STARS, GUEST)
