"""A template's pieces to its tree. Go's grammar, less what `modelkit.chat.go` leaves out."""

import re
from collections.abc import Iterator

from modelkit.chat.go.functions import FUNCTIONS
from modelkit.chat.go.lexer import Token, Words, fault, pieces
from modelkit.chat.go.tree import (
    Action,
    Branch,
    Field,
    Function,
    Group,
    Leave,
    Literal,
    Node,
    Nodes,
    Operand,
    Pipe,
    Text,
    Variable,
)
from runtime.quoting import quoted, shown

MOST_NESTING = 40
_BRANCHES = ("if", "with", "range")
_REFUSED = ("define", "template", "block")
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "nil": None}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([0-7]{3})|U([0-9a-fA-F]{8})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"'}


def parse(source: str) -> Nodes:
    """Raises TemplateError, with line and column."""
    reader = _Reader(pieces(source))
    nodes, end = reader.nodes(0, inside=None)
    if end is not None:
        raise fault(end.place, f"{{{{{end.tokens[0].text}}}}} without anything that it ends")
    return nodes


class _Reader:
    def __init__(self, given: Iterator[str | Words]) -> None:
        self._given = given
        self._scopes: list[set[str]] = [{"$"}]
        self._loops = 0

    def nodes(self, depth: int, inside: Words | None) -> tuple[Nodes, Words | None]:
        """Nodes up to an `end` or `else` that belongs to `inside`, and that."""
        made: list[Node] = []
        for piece in self._given:
            if isinstance(piece, str):
                made.append(Text(piece))
                continue
            word = piece.tokens[0].text if piece.tokens and piece.tokens[0].kind == "word" else ""
            if word in ("end", "else"):
                return tuple(made), piece
            made.append(self._node(piece, word, depth))
        if inside is not None:
            raise fault(inside.place, f"{{{{{inside.tokens[0].text}}}}} has no {{{{end}}}}")
        return tuple(made), None

    def _node(self, words: Words, word: str, depth: int) -> Node:
        if word in _REFUSED:
            hint = "Write the text where it is used, or the whole template in jinja."
            raise fault(words.place, f"{quoted(word)} is not supported", hint)
        if word in ("break", "continue"):
            if not self._loops or len(words.tokens) != 1:
                raise fault(words.place, f"{quoted(word)} stands alone, inside a range")
            return Leave(word)
        if word in _BRANCHES:
            return self._branch(words, words.tokens[1:], word, depth + 1)
        return Action(self._pipe(words, words.tokens))

    def _branch(self, words: Words, rest: tuple[Token, ...], keyword: str, depth: int) -> Branch:
        if depth > MOST_NESTING:
            raise fault(words.place, f"more than {MOST_NESTING} levels")
        self._scopes.append(set())
        pipe = self._pipe(words, rest, ranges=keyword == "range")
        self._loops += keyword == "range"
        body, end = self._inner(depth, words)
        self._loops -= keyword == "range"
        other: Nodes | None = None
        if end.tokens[0].text == "else":
            again = end.tokens[1].text if len(end.tokens) > 1 else ""
            if again in ("if", "with") and keyword == again:
                other = (self._branch(end, end.tokens[2:], again, depth + 1),)
            elif again:
                raise fault(end.place, f"{quoted(again)} is not understood behind else of {keyword}")
            else:
                other, end = self._inner(depth, words)
                if end.tokens[0].text != "end":
                    raise fault(end.place, "a second else")
        self._scopes.pop()
        return Branch(keyword, pipe, body, other)

    def _inner(self, depth: int, words: Words) -> tuple[Nodes, Words]:
        self._scopes.append(set())
        nodes, end = self.nodes(depth, words)
        self._scopes.pop()
        assert end is not None
        return nodes, end

    def _pipe(self, words: Words, tokens: tuple[Token, ...], *, ranges: bool = False) -> Pipe:
        names, assigns, rest = _declared(tokens, most=2 if ranges else 1)
        pipe, left = self._commands(words, rest, 0)
        if left:
            raise fault(left[0].place, f"{quoted(left[0].text)} is one too many")
        for name in names:
            if assigns and not any(name in scope for scope in self._scopes):
                raise fault(words.place, f"the variable {name} is not declared")
            if not assigns:
                self._scopes[-1].add(name)
        return Pipe(pipe.commands, pipe.place, names, assigns)

    def _commands(
        self, words: Words, tokens: tuple[Token, ...], depth: int
    ) -> tuple[Pipe, tuple[Token, ...]]:
        """Commands up to the end or a closing parenthesis, and what is left from there on."""
        if depth > MOST_NESTING:
            raise fault(words.place, f"more than {MOST_NESTING} levels of parentheses")
        commands: list[tuple[Operand, ...]] = []
        place = tokens[0].place if tokens else words.place
        while True:
            operands: list[Operand] = []
            while tokens and tokens[0].text not in ("|", ")"):
                operand, tokens = self._operand(words, tokens, depth)
                operands.append(operand)
            if not operands:
                raise fault(tokens[0].place if tokens else words.place, "something is missing here")
            self._check(operands, piped=bool(commands))
            commands.append(tuple(operands))
            if not tokens or tokens[0].text == ")":
                return Pipe(tuple(commands), place), tokens
            tokens = tokens[1:]

    def _operand(
        self, words: Words, tokens: tuple[Token, ...], depth: int
    ) -> tuple[Operand, tuple[Token, ...]]:
        first, rest = tokens[0], tokens[1:]
        match first.kind:
            case "text" | "number":
                return Literal(_value(first), first.place), rest
            case "word" if first.text in _CONSTANTS:
                return Literal(_CONSTANTS[first.text], first.place), rest
            case "word":
                return Function(first.text, first.place), rest
            case "variable":
                if not any(first.text in scope for scope in self._scopes):
                    raise fault(first.place, f"the variable {first.text} is not declared")
                names, rest = _fields(rest)
                return Variable(first.text, names, first.place), rest
            case "field":
                names, rest = _fields(rest)
                return Field((first.text[1:], *names), first.place), rest
            case "mark" if first.text == ".":
                return Field((), first.place), rest
            case "mark" if first.text == "(":
                pipe, rest = self._commands(words, rest, depth + 1)
                if not rest:
                    raise fault(first.place, "this parenthesis is not closed")
                names, rest = _fields(rest[1:])
                return Group(pipe, names, first.place), rest
            case _:
                raise fault(first.place, f"{quoted(first.text)} is not understood here")

    def _check(self, operands: list[Operand], *, piped: bool) -> None:
        """A function comes first, and only a function takes arguments."""
        first = operands[0]
        for one in operands:
            if isinstance(one, Function) and one.name not in FUNCTIONS:
                known = ", ".join(sorted(FUNCTIONS))
                raise fault(one.place, f"there is no function {quoted(one.name)}", f"There are: {known}.")
        if not isinstance(first, Function) and (piped or len(operands) > 1):
            raise fault(first.place, "this is not a function, so it takes no arguments")


def _declared(tokens: tuple[Token, ...], most: int) -> tuple[tuple[str, ...], bool, tuple[Token, ...]]:
    """The variables that a pipe sets, whether they were there before, and the rest of it."""
    for count in (1, 2):
        names = tokens[: 2 * count - 1]
        sign = tokens[2 * count - 1 : 2 * count]
        if not sign or sign[0].text not in (":=", "="):
            continue
        variables, commas = names[::2], names[1::2]
        if all(one.kind == "variable" for one in variables) and all(one.text == "," for one in commas):
            if count > most:
                raise fault(tokens[0].place, "only a range sets two variables")
            return tuple(one.text for one in variables), sign[0].text == "=", tokens[2 * count :]
    return (), False, tokens


def _fields(tokens: tuple[Token, ...]) -> tuple[tuple[str, ...], tuple[Token, ...]]:
    """The fields that follow without a blank."""
    count = 0
    while count < len(tokens) and tokens[count].kind == "field" and not tokens[count].spaced:
        count += 1
    return tuple(one.text[1:] for one in tokens[:count]), tokens[count:]


def _value(token: Token) -> str | int | float:
    if token.kind == "text":
        return token.text[1:-1] if token.text[0] == "`" else _unquoted(token)
    text = token.text.replace("_", "")
    try:
        return int(text, 0) if re.fullmatch(r"[+-]?(0[xX].+|0|[1-9][0-9]*)", text) else float(text)
    except ValueError as error:
        raise fault(token.place, f"{quoted(token.text)} is not a number") from error


def _unquoted(token: Token) -> str:
    def read(found: re.Match[str]) -> str:
        code = next((group for group in found.groups()[:4] if group), None)
        if code is not None:
            return chr(int(code, 8 if found[2] else 16))
        if found[5] not in _SIMPLE:
            raise ValueError(found[0])
        return _SIMPLE[found[5]]

    try:
        return _ESCAPE.sub(read, token.text[1:-1])
    except (ValueError, OverflowError) as error:
        raise fault(token.place, f"{shown(token.text)} has an escape that Go does not know") from error
