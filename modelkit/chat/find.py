"""Which chat template a model has: the Modelfile's, else what lies among its files."""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from modelkit.address import looks_like_path
from modelkit.chat.builtin import builtin_templates
from modelkit.errors import SourceError, TemplateError
from modelkit.modelfile.go import is_go
from modelkit.python_faults import fault, unread
from modelkit.source.tree import TOOLS_TEMPLATE, open_regular
from modelkit.text_files import read_text
from runtime.quoting import quoted, shown

LIMIT_BYTES = 10_000_000
_TEMPLATE_FILES = (".jinja", ".jinja2", ".j2", ".txt", ".tmpl", ".json")
NO_TEMPLATE = "has no chat template; prompts go to the model as they are"
"""How the note on a model without a template ends, by which it is told from other notes."""


def find_template(files: Mapping[str, Path], explicit: str | None = None) -> str | None:
    """The jinja source of a model's chat template, or None when it has none.

    `files` maps names in the model's folder to where they lie. `explicit` is the text of TEMPLATE and wins:
    the name of a built-in template, jinja itself, or a template in Go's language, which becomes jinja. Then
    come `chat_template.jinja` (with `additional_chat_templates/tool_use.jinja`), `chat_template.json` and the
    `chat_template` of `tokenizer_config.json`; a separate template for conversations with tools is joined to
    the default one.
    Raises TemplateError for a file that cannot be read, and for a TEMPLATE that is neither.
    """
    if explicit is not None:
        return _explicit(explicit)
    if "chat_template.jinja" in files:
        tools = files.get(TOOLS_TEMPLATE)
        own = _read(files["chat_template.jinja"], "chat_template.jinja")
        if own.strip():
            return join_tools(own, _read(tools, TOOLS_TEMPLATE) if tools else None)
    for name in ("chat_template.json", "tokenizer_config.json"):
        if name in files:
            found = _from_json(_read(files[name], name), name)
            if found is not None:
                return found
    return None


def check_explicit(text: str) -> None:
    """Raises TemplateError for the text of a TEMPLATE that cannot be read. Whether it works for a model is
    asked when that is known.
    """
    from modelkit.chat.template import ChatTemplate

    source = find_template({}, text)
    if source is not None:
        ChatTemplate(source)


def _instead() -> str:
    raw = "Give a raw prompt (--raw, raw=True, /v1/completions)"
    return f"{raw}, or add TEMPLATE to its Modelfile: jinja, or {_names()}."


def no_template() -> TemplateError:
    """What to raise when a chat is asked of a model without a template."""
    return TemplateError(
        "this model has no chat template, so messages cannot be put into a prompt",
        hint=_instead(),
    )


def broken_template(fault: TemplateError) -> TemplateError:
    """What to raise when a chat is asked of a model whose own template does not work."""
    return TemplateError(
        f"this model's chat template cannot be used: {fault.message}",
        hint=_instead(),
    )


def join_tools(default: str, tools: str | None) -> str:
    """One template that does what `tools` does when there are tools, else what `default` does."""
    if tools is None or tools == default:
        return default
    first, second = (text.removesuffix("\n") for text in (tools, default))
    # The plus signs keep trim_blocks and lstrip_blocks from eating what the two templates begin and end with.
    return f"{{% if tools +%}}{first}{{%+ else +%}}{second}{{%+ endif %}}"


def _explicit(text: str) -> str:
    builtin = builtin_templates().get(text.strip())
    if builtin is not None:
        return builtin.source
    if is_go(text):
        from modelkit.chat.go.convert import to_jinja  # only here: most templates are jinja

        return to_jinja(text)
    if "{{" not in text and "{%" not in text:
        raise TemplateError(
            f"TEMPLATE {quoted(text.strip())} is neither jinja nor the name of a built-in template",
            hint=_meant(text.strip()),
        )
    return text


def _meant(text: str) -> str:
    close = get_close_matches(text[:40].lower(), builtin_templates(), n=1)
    if close:
        return f"Did you mean {close[0]}?"
    if looks_like_path(text) or text.lower().endswith(_TEMPLATE_FILES):
        return f'No file is read here: put the text of {shown(text)} behind TEMPLATE, between """ and """.'
    return f"Write {_names()}, or a jinja template."


def _names() -> str:
    return "one of the built-in names: " + ", ".join(builtin_templates())


def _from_json(text: str, name: str) -> str | None:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TemplateError(f"{name} is not valid JSON: {fault(error)}") from error
    template = value.get("chat_template") if isinstance(value, dict) else None
    if not template:  # null, "", [] and {} alike: there is none
        return None
    if isinstance(template, str):
        return template if template.strip() else None
    named = _named(template)
    if "default" not in named:
        raise TemplateError(f"{name}: chat_template is a list without a template named 'default'")
    return join_tools(named["default"], named.get("tool_use"))


def _named(value: object) -> dict[str, str]:
    """`[{"name": ..., "template": ...}, ...]`, or an object from names to templates."""
    if isinstance(value, dict):
        pairs = list(value.items())
    else:
        entries = [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
        pairs = [(entry.get("name"), entry.get("template")) for entry in entries]
    return {name: text for name, text in pairs if isinstance(name, str) and isinstance(text, str)}


def _read(path: Path, name: str) -> str:
    """name: what the model calls the file, which lies in a store under its digest."""
    try:
        with open_regular(path, name) as file:
            return read_text(file, LIMIT_BYTES)
    except SourceError as error:
        raise TemplateError(error.message) from error
    except (OSError, ValueError) as error:
        raise TemplateError(f"{name} cannot be read: {unread(error)}") from error
