"""A model's chat template: messages and tools in, prompt text out."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from modelkit.arguments import elements, mapping
from modelkit.chat.adaptation import adapted
from modelkit.chat.habits import Habits, find_habits
from modelkit.chat.message import Message, ToolCall
from modelkit.chat.parts import in_parts, reads_parts
from modelkit.chat.plain_data import plain
from modelkit.chat.styles.style import Style
from modelkit.chat.styles.table import fingerprinted
from modelkit.chat.styles.writing import write_calls
from modelkit.errors import RequestError, TemplateError
from modelkit.tokenizer.special import Specials
from runtime.quoting import quoted

MOST_TOOLS = 512
MOST_VARIABLES = 64
_SET_HERE = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "tokenize")
# What is added to a tool that lacks it, where the template fails without.
_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
_WHOLE: dict[str, Any] = {"description": "", "parameters": _PARAMETERS}
# Private-use characters, so that no text holds it; the blank shows whether the template strips.
_END_MARK = "\ue0f0modelkit:continue\ue0f0 "


class ChatTemplate:
    """Renders with the texts of the model's special tokens at hand; a token that is None stays undefined.

    `variables` names what the template reads beyond that; callers may set these and no others. Safe to use
    from any thread. Raises TemplateError for a source that does not compile.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str | None = None,
        eos_token: str | None = None,
        unk_token: str | None = None,
        pad_token: str | None = None,
        name: str = "chat template",
    ) -> None:
        from modelkit.chat.guarded import GuardedTemplate  # with jinja2, for models that have a template

        self.source = source
        self._template: GuardedTemplate = GuardedTemplate(source, name=name)
        given = {
            "bos_token": bos_token,
            "eos_token": eos_token,
            "unk_token": unk_token,
            "pad_token": pad_token,
        }
        self._tokens = {token: text for token, text in given.items() if text is not None}
        self.variables = self._template.undeclared - {*_SET_HERE, *given}
        self._habits: Habits | None = None
        self._no_tools: list[Any] | None = None  # [] for a template that fails at None
        self._parts: bool | None = None
        self.style: Style | None = None
        """How the model marks its answers, where that is known better than by the template's own marks."""

    @classmethod
    def of(cls, source: str, special: Specials) -> "ChatTemplate":
        """With the texts of a tokenizer's special tokens."""
        return cls(
            source,
            bos_token=special.bos,
            eos_token=special.eos,
            unk_token=special.unk,
            pad_token=special.pad,
        )

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        variables: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> str:
        """The prompt. Special tokens stand in it as text: encode it without adding any.

        With `continue_final` the prompt ends inside the last message, the assistant's, for the model to go on
        from there; it takes the place of the generation prompt. `now` stands in for the clock.
        Raises RequestError for bad tools or variables, TemplateError when the template fails.
        """
        rendered = adapted(messages, self.habits, self._written)
        if continue_final:
            _mark_end(messages, rendered)
        listed = self._tools(tools)
        if listed and self.habits().tools_in_system:
            rendered = _with_tools(rendered, listed)
        given = self._variables(variables)
        inviting = add_generation_prompt and not continue_final
        text = self._filled(rendered, listed, inviting, given, now)
        return _cut_at_mark(text, messages[-1].content) if continue_final else text

    def _tools(self, given: Sequence[Mapping[str, Any]] | None) -> list[Any] | None:
        tools = _tools(given)
        if tools is None:
            return None
        told = [{**tool, "function": _whole(tool["function"])} for tool in tools]
        if told == tools or self.habits().bare_tools:
            told = tools
        named: list[Any] = _without_null(told)
        return told if named == told or self.habits().null_types else named

    def habits(self) -> Habits:
        """How it wants conversations to be given; `render` gives them so."""
        if self._habits is None:
            self._habits = find_habits(self._filled, self.source)
        return self._habits

    def _written(self, calls: Sequence[ToolCall]) -> str | None:
        """Calls as the model writes them; None where that is not known."""
        style = self.style or fingerprinted(self.source)
        return write_calls(style, calls) if style and style.form and not style.header else None

    def _filled(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        inviting: bool = False,
        variables: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> str:
        if self._parts is None:
            self._parts = reads_parts(self.source, lambda messages: self._rendered(messages, None))
        messages = in_parts(messages) if self._parts else messages
        return self._rendered(messages, tools, inviting, variables, now)

    def _rendered(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        inviting: bool = False,
        variables: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> str:
        """Templates that are made for tools alone (Hermes' second, FunctionGemma's in vLLM) count or walk
        them without a look whether there are any.
        """
        given = {
            **self._instead_of_tools(tools, now),
            **(variables or {}),
            **self._tokens,
            "messages": messages,
            "tools": self._no_tools if tools is None else tools,
            "documents": None,
            "add_generation_prompt": inviting,
        }
        try:
            return self._template.render(given, now=now)
        except TemplateError as error:
            if given["tools"] is not None or "NoneType" not in str(error):
                raise
            try:
                text = self._template.render({**given, "tools": []}, now=now)
            except TemplateError:
                raise error from None
            self._no_tools = []
            return text

    def _instead_of_tools(
        self, tools: Sequence[Mapping[str, Any]] | None, now: datetime | None
    ) -> dict[str, str]:
        """FireFunction's template reads the tools' functions as JSON text, and wants the day beside them."""
        if not self.variables >= {"functions", "datetime"}:
            return {}
        day = (now or datetime.now()).strftime("%Y-%m-%d")  # a time of day would change the prompt each time
        return {"functions": json.dumps([one["function"] for one in tools or ()], indent=4), "datetime": day}

    def _variables(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        variables = {} if given is None else mapping(given, "variables")
        unknown = next((name for name in variables if name not in self.variables), None)
        if unknown is not None or len(variables) > MOST_VARIABLES:
            raise RequestError(
                f"variables: the chat template has no variable {quoted(unknown)} that may be set",
                hint=f"It reads: {', '.join(sorted(self.variables)) or 'none'}.",
            )
        return plain(variables, "the template's variables")


def _tools(tools: Sequence[Mapping[str, Any]] | None) -> list[Any] | None:
    """Tools as templates expect them, OpenAI's shape: `{"type": "function", "function": {"name": ...}}`."""
    listed = [] if tools is None else list(elements(tools, "tools", "tools"))
    if len(listed) > MOST_TOOLS:
        raise RequestError(f"tools has {len(listed)} entries, expected at most {MOST_TOOLS}")
    if not listed:
        return None
    copies: list[Any] = plain(listed, "tools")
    for number, tool in enumerate(copies):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestError(
                f"tools[{number}] has no function with a name",
                hint='A tool is {"type": "function", "function": {"name": ..., "parameters": {...}}}.',
            )
    return copies


def _whole(function: Mapping[str, Any]) -> dict[str, Any]:
    """With all that some templates fail without, down to its parameters' descriptions."""
    made = {**function, **{key: one for key, one in _WHOLE.items() if key not in function}}
    parameters = made["parameters"]
    if isinstance(parameters, dict):
        filled = {**parameters, **{key: one for key, one in _PARAMETERS.items() if key not in parameters}}
        made["parameters"] = filled
        if isinstance(named := filled["properties"], dict):
            filled["properties"] = {
                name: {**one, "description": ""}
                if isinstance(one, dict) and "description" not in one
                else one
                for name, one in named.items()
            }
    return made


def _without_null(schema: Any) -> Any:
    """With lists of types that do not name null."""
    if isinstance(schema, list):
        return [_without_null(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _without_null(one) for key, one in schema.items()}
    if isinstance(types := made.get("type"), list) and "null" in types:
        left = [one for one in types if one != "null"]
        made["type"] = left[0] if len(left) == 1 else left or types
    return made


def _with_tools(rendered: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """With the tools' functions as JSON text in the system message, which is made where there is none."""
    text = json.dumps([tool["function"] for tool in tools], ensure_ascii=False)
    has_one = bool(rendered) and rendered[0]["role"] == "system"
    first = rendered[0] if has_one else {"role": "system", "content": ""}
    return [{**first, "tools": text}, *rendered[has_one:]]


def _mark_end(messages: Sequence[Message], rendered: list[dict[str, Any]]) -> None:
    if not messages or messages[-1].role != "assistant":
        raise RequestError("there is no last assistant message to continue")
    content = rendered[-1]["content"]
    if isinstance(content, list):  # parts: the text is the last of them
        content.append({"type": "text", "text": _END_MARK})
    else:
        rendered[-1]["content"] = (content or "") + _END_MARK


def _cut_at_mark(text: str, content: str) -> str:
    """The text up to the mark; where the template strips messages, without the blanks that end `content`."""
    before, mark, after = text.rpartition(_END_MARK.rstrip())
    if not mark:
        raise TemplateError("the chat template leaves out the message that should be continued")
    return before if after.startswith(" ") else before.removesuffix(content[len(content.rstrip()) :])
