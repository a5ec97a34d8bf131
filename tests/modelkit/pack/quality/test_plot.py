"""`quality.svg`: what is drawn, and what is said of its colours."""

import re
from itertools import pairwise

from modelkit.pack.quality.plot import picture
from modelkit.pack.quality.report import Report, Row
from runtime.quality.divergence import Divergence

KINDS = ("q_proj", "k_proj", "kv_a_proj_with_mqa", "in_proj_qkvz", *(f"matrix_{n}" for n in range(9)))


def test_each_matrix_has_a_bar_and_kinds_have_colours_of_their_own() -> None:
    """Of those that get one format together, one has the cost of all."""
    rows = [
        Row(f"model.layers.0.{kind}.weight", "q4", 72, 128, 0.1 if kind == "q_proj" else None)
        for kind in KINDS
    ]
    found = Divergence(kl=0.1, kl_p99=0.2, same_top=0.9, perplexity_ratio=1.1, perplexity=9.0, tokens=100)
    drawn = picture(Report("4 bits", 4.5, 1000, True, found, found, tuple(rows))).decode()
    assert all(f"<title>{row.name}: q4</title>" in drawn for row in rows)
    said = re.findall(r'<text x="(\d+)" y="(\d+)" fill="(#\w+)">([^<]+)<', drawn)
    assert [kind for *_, kind in said] == [*KINDS[:9], "others"]
    assert len({colour for *_, colour, _ in said}) == 10
    for (x, y, _, kind), (after, line, *_) in pairwise(said):
        assert line != y or int(after) >= int(x) + 6 * len(kind)
