"""What messages say of many things at once."""

from modelkit.problems import sentences_of


def test_what_holds_of_several_is_said_once() -> None:
    """`layers.0.norm.weight cannot differ ..., fuse it ...` stood there three times, for three layers."""
    assert (
        sentences_of(["a is missing", "b is odd", "c is missing"]) == "a is missing, and so with c; b is odd"
    )
    many = [f"x.{n} is missing" for n in range(5)]
    assert sentences_of(many) == "x.0 is missing, and so with x.1, x.2 and 2 more"
    assert sentences_of([f"a is {word}" for word in "bcdef"]) == "a is b; a is c; a is d; and 2 more"
    assert sentences_of(["alone"]) == "alone"
