"""One output style: the marks with which a model tells thinking, text and calls of tools apart.

Marks are written as the model writes them, blanks included: `"<tool_call>\\n"`. A grammar uses them so. What
splits an answer matches a mark's core, the mark without the blanks at its two ends, and takes as many of
those blanks for the mark's own as stand there; blanks in front belong to the text before where there is none
before them. "" is a mark that the style does not have.

An answer is

    thinking?  ( text | section.open call (joiner call)* section.close )*
    call = call.open FORM call.close

where FORM is one of JsonCall, MarkedCall and PythonCall, and a style without `section` (or `call`) has
nothing in its place. Styles with a `header` write messages instead, each with a header that says what it is.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from modelkit.chat.styles.reading import record
from runtime.records import dataclass

FENCE = "```"
LANGUAGES = ("json", "python", "tool_call", "tool_code")
"""Behind the fence that models like to put around JSON, and around calls as in Python. Read, never asked
for.
"""


@dataclass(frozen=True, slots=True)
class Span:
    """A part of an answer between two marks."""

    open: str
    close: str = ""
    """"" for a part that lasts to the answer's end, or as long as its form goes on."""
    opens_too: tuple[str, ...] = ()
    """Other marks that some models of the style open with. Read, never asked for."""
    closes_too: tuple[str, ...] = ()
    """Other marks that some models of the style close with. Read, never asked for."""

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open, *self.opens_too)

    @property
    def closes(self) -> tuple[str, ...]:
        return tuple(mark for mark in (self.close, *self.closes_too) if mark)

    @property
    def marks(self) -> tuple[str, ...]:
        return (*self.opens, *self.closes)


@dataclass(frozen=True, slots=True)
class TypeMark:
    """An attribute of a tagged argument that says how its value is written: `" string="true`."""

    open: str
    """From the argument's name to the attribute's value: `" string="`."""
    text: str
    """The attribute's value where the argument is raw text: `true`, `string`."""
    other: str = ""
    """The attribute's value where it is JSON: `false`. "" for the JSON type's own name: `number`."""


@dataclass(frozen=True, slots=True)
class Tag:
    """Arguments one by one, each in marks of its own: `<parameter=k>\\nvalue\\n</parameter>\\n`.

    Texts are raw, all other values JSON, as the tool's schema says. One blank run at each end of a value
    belongs to the marks as far as `name_end` ends and `close` begins with it.
    """

    open: str
    """In front of the name: `<parameter=`."""
    name_end: str
    """Between name (or type) and value: `>\\n`."""
    close: str
    """Behind the value: `\\n</parameter>\\n`; `{name}` in it stands for the argument's name."""
    type: TypeMark | None = None
    """Between name and name_end, where the style says the value's type."""
    nested: bool = False
    """Objects and lists are tags again, with their keys for names, instead of JSON."""
    item: str = "item"
    """Where nested, the name of a list's elements."""
    raw: Span | None = None
    """Around a text, where the model likes to say that nothing in it is a mark: `<![CDATA[`, `]]>`. Read,
    never asked for."""

    @property
    def marks(self) -> tuple[str, ...]:
        kind = (self.type.open,) if self.type else ()
        raw = self.raw.marks if self.raw else ()
        return (self.open, *kind, self.name_end, *self.close.split("{name}"), *raw)


@dataclass(frozen=True, slots=True)
class JsonCall:
    """A call is a JSON object with the tool's name and its arguments."""

    name: str = "name"
    """The name's key."""
    arguments: str = "arguments"
    """The arguments' key. A splitter takes "arguments" and "parameters" as well."""
    id: str | None = None
    """The call's id's key, where the style has one."""
    name_is_key: bool = False
    """The object has one member, whose key is the name and whose value are the arguments."""
    list: bool = False
    """The calls are elements of one JSON list, which the section encloses."""
    kind: Literal["json"] = "json"
    """In JSON, what tells the forms apart."""


@dataclass(frozen=True, slots=True)
class MarkedCall:
    """A call is the tool's name between marks, then its arguments."""

    prefix: str = ""
    """In front of the name: `<function=`, `functions.`."""
    suffix: str = ""
    """Between name (or id) and arguments: `>\\n`, `[ARGS]`. "" where the arguments' own beginning ends the
    name."""
    close: str = ""
    """Behind the arguments, in front of call.close: `</function>`."""
    id_mark: str = ""
    """In front of an id that follows the name: `[CALL_ID]`, `:`."""
    id_before: str = ""
    """Behind an id that stands in front of the name: `<|tool_call:name|>`."""
    arguments: Literal["json", "tags", "dict"] = "json"
    """"json": a JSON object. "tags": as `tag` says. "dict": `{key:value,...}` with texts between two `quote`
    and keys without quotes."""
    tag: Tag | None = None
    """Of the arguments "tags"."""
    named: bool = True
    """False where the header has named the tool, and the call is its arguments."""
    quote: str = ""
    """Of the arguments "dict", what stands at both ends of a text: `<|"|>`."""
    kind: Literal["marked"] = "marked"
    """As in JsonCall."""

    @property
    def marks(self) -> tuple[str, ...]:
        tags = self.tag.marks if self.tag else ()
        return (self.prefix, self.id_before, self.suffix, self.close, self.id_mark, self.quote, *tags)


@dataclass(frozen=True, slots=True)
class PythonCall:
    """A call is written as in Python: `f(a="x", n=1)`."""

    list: bool = True
    """The calls stand between `[` and `]`, joined by `, `; else each on a line of its own."""
    kind: Literal["python"] = "python"
    """As in JsonCall."""


@dataclass(frozen=True, slots=True)
class Header:
    """The answer is messages, each behind a header: `<|channel|>commentary to=functions.f<|message|>{..}`.

    A header is everything from where a message begins to `message`. The answer begins in one, unless the
    prompt wrote it.
    """

    start: str
    """Begins the next message: `<|start|>assistant`."""
    message: str
    """Ends the header: `<|message|>`."""
    ends: tuple[str, ...]
    """End the message: `<|end|>`, `<|call|>`, `<|return|>`. The first is that of thinking, the second, where
    there is one, that of a call."""
    thinking: str
    """The header of thinking, without `message`: `<|channel|>analysis`. "" for models that do not think."""
    text: str
    """The header of the answer itself: `<|channel|>final`."""
    call: str
    """The header of a call; `{name}` in it stands for the tool's name: `<|channel|>commentary
    to=functions.{name} <|constrain|>json`."""
    recipient: str
    """In front of the recipient's name, which is a tool's or one of `not_tools`: `to=`."""
    not_tools: tuple[str, ...] = ()
    """Recipients that are no tools: a message to them is thinking where `thinking` names them, else text."""
    listed: bool = False
    """Headers are text that an answer may hold anywhere (`>>>f\\n`): one is a header only where it is whole
    and that of the answer itself or of a tool that is there. Calls follow each other in one answer then."""
    goes_on: bool = False
    """A message of text or a call may end as thinking does, and another call follows in the same answer."""

    def heads(self, tools: Iterable[str]) -> dict[str, str]:
        """What a header of each of these tools is, from behind `start` on."""
        return {self.call.replace("{name}", name) + self.message: name for name in tools}

    @property
    def marks(self) -> tuple[str, ...]:
        call = self.call.split("{name}")
        return (self.start, self.message, *self.ends, self.thinking, self.text, *call, self.recipient)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Texts by which the style is known in a chat template."""

    has: tuple[str, ...]
    """All of them are in it."""
    lacks: tuple[str, ...] = ()
    """None of them is."""


@dataclass(frozen=True, slots=True)
class Style:
    """One row of the table."""

    name: str
    """As PARSER takes it and `show` prints it: `qwen3-coder`."""
    description: str = ""
    """Of which models, in one line."""
    fingerprints: tuple[Fingerprint, ...] = ()
    """Any of them will do."""
    think: Span | None = None
    """What the model thinks. Whether the template opens it is seen in the prompt: see Opening."""
    text: Span | None = None
    """What the style puts around the answer itself: `<|START_RESPONSE|>`. Its marks are in no event."""
    section: Span | None = None
    """Around all calls of one turn. A list of calls stands in one."""
    call: Span | None = None
    """Around each call."""
    form: JsonCall | MarkedCall | PythonCall | None = None
    """How a call is written; None for a model that calls no tools."""
    joiner: str = ""
    """Between two calls."""
    header: Header | None = None
    """Of styles that write messages with headers. think and text are None then; section, call and form say
    what a message to a tool holds."""
    bare: bool = False
    """Calls come without the marks around them too. Known by a tool's name: at the beginning of the answer
    and behind a call for forms that begin with `{`, `[` or a name, anywhere for those that have a prefix."""
    loose: bool = False
    """Some models of the style write their calls as JSON alone, as in `bare`: read so, never asked for."""
    inside_think: Literal["call", "text"] = "call"
    """What a call's first mark is while the model thinks: a call, which ends the thinking, or text."""
    ids: Literal["own", "mistral9", "kimi"] = "own"
    """What ids look like where the model writes none: `call_` and letters; nine letters and digits;
    `functions.NAME:N`. With "kimi" the head of the call itself is the id."""
    stops: tuple[str, ...] = ()
    """Tokens that end an answer besides those the model's own files name."""
    extra: Mapping[str, Any] | None = None
    """What only the table's other readers need, as they wrote it."""

    def __post_init__(self) -> None:
        form = self.form
        if isinstance(form, MarkedCall) and (form.arguments == "tags") != (form.tag is not None):
            raise ValueError(
                f"style {self.name}: form.tag goes with the arguments 'tags', and with no others"
            )
        if isinstance(form, MarkedCall) and (form.arguments == "dict") != bool(form.quote):
            raise ValueError(f"style {self.name}: form.quote goes with the arguments 'dict'")
        if self.header and (self.think or self.text):
            raise ValueError(f"style {self.name}: a style with a header has neither think nor text")
        if form and not (self.bare or self.header or self.begins):
            raise ValueError(f"style {self.name}: nothing marks where a call begins, and bare is false")

    @classmethod
    def read(cls, value: object, where: str = "the style") -> "Style":
        """From JSON's objects, lists and texts, strictly: ValueError says where, what is and what was
        expected. Keys that are left out have their defaults.
        """
        style = record(cls, value, where)
        assert isinstance(style, cls)
        return style

    @property
    def begins(self) -> tuple[str, ...]:
        """The marks of which each begins calls, as the model writes them, the usual one first."""
        spans = [span for span in (self.section, self.call) if span]
        marks = [mark for span in spans for mark in span.opens if mark.strip()]
        if not spans and isinstance(self.form, MarkedCall) and self.form.prefix.strip():
            marks.append(self.form.prefix)
        return tuple(dict.fromkeys(marks))

    @property
    def marks(self) -> tuple[str, ...]:
        """The core of every mark, longest first: a special token that is part of none means nothing here."""
        form = self.form if isinstance(self.form, MarkedCall) else None
        parts = (self.think, self.text, self.section, self.call, form, self.header)
        found = {mark.strip() for part in parts if part for mark in part.marks}
        return tuple(sorted(found - {""}, key=lambda mark: (-len(mark), mark)))
