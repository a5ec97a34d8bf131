"""From a template in Go's language to a jinja template of the same text."""

from modelkit.chat.go.emitter import emit
from modelkit.chat.go.legacy import assigned, reads, up_to_response
from modelkit.chat.go.parser import parse
from modelkit.chat.go.tree import Action, Field, Pipe, Place

# What a request says about thinking, by the names that templates use for it.
_THINK = ", enable_thinking if enable_thinking is defined else none"
_LEVEL = ", reasoning_effort if reasoning_effort is defined else none"


def to_jinja(source: str) -> str:
    """Raises TemplateError, with line and column, for what is no template of Go's or is left out here."""
    nodes = parse(source)
    known, again = reads(nodes), assigned(nodes)
    given = "messages, tools"
    if known & {"think", "isthinkset", "thinklevel"}:
        given += _THINK + (_LEVEL if "thinklevel" in known else "")
    if "messages" in known:
        return f"{{%+ set data = go_data({given}) +%}}{emit(nodes, 'data', again)}"
    if "response" not in known:
        place = Place(1, 1)
        nodes = (*nodes, Action(Pipe(((Field(("Response",), place),),), place)))
    turn, last = emit(nodes, "data", again), emit(up_to_response(nodes), "data", again)
    return (
        f"{{%+ set turns = go_turns({given}) +%}}"
        f"{{%+ for data in turns[:-1] +%}}{turn}{{%+ endfor +%}}"
        f"{{%+ set data = turns[-1] +%}}{last}"
    )
