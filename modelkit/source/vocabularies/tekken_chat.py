"""The chat template of a tekken.json: how mistral_common, by the file's version, writes a conversation.

    7    calls are JSON
    11   calls are marks: name, id, arguments
    13   no ids, and tools before the first user message, not the last

Messages of one role that follow each other are one. What came before version 7 brings a template, and so does
what has come since 15.
"""

from string import Template

VERSIONS = range(7, 15)

_TEXT = Template("""{%- set system = messages | selectattr('role', 'in', ['system', 'developer']) \
| map(attribute='content') | join('\\n\\n') %}
{%- set turns = messages | rejectattr('role', 'in', ['system', 'developer']) | list %}
{%- set asked = namespace(at=none) %}
{%- for message in turns %}
{%- if message.role == 'user' and (loop.first or loop.previtem.role != 'user')$first %}
{%- set asked.at = loop.index0 %}
{%- endif %}
{%- endfor %}
{{- bos_token }}
{%- if system %}
{{- '[SYSTEM_PROMPT]' + system + '[/SYSTEM_PROMPT]' }}
{%- endif %}
{%- for message in turns %}
{%- if message.role == 'user' %}
{%- if tools and loop.index0 == asked.at %}
{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}
{%- endif %}
{{- '[INST]' if loop.first or loop.previtem.role != 'user' else '\\n\\n' }}
{{- message.content }}
{{- '[/INST]' if loop.last or loop.nextitem.role != 'user' }}
{%- elif message.role == 'assistant' %}$thinking
{{- message.content or '' }}
{%- if message.tool_calls %}$calls
{%- endif %}
{{- eos_token }}
{%- elif message.role == 'tool' %}
{{- '[TOOL_RESULTS]'$result + message.content + '[/TOOL_RESULTS]' }}
{%- else %}
{{- raise_exception('the roles are system, user, assistant and tool') }}
{%- endif %}
{%- endfor %}
""")
_THINKING = """
{%- if message.reasoning_content %}
{{- '[THINK]' + message.reasoning_content + '[/THINK]' }}
{%- endif %}"""
_ALL_NINE = """
{%- for call in message.tool_calls if call.id is undefined or call.id | length != 9 %}
{{- raise_exception('ids of calls are nine letters and digits') }}
{%- endfor %}"""
_AS_JSON = """
{{- '[TOOL_CALLS][' }}
{%- for call in message.tool_calls %}
{%- set its = call.function %}
{{- ', ' if not loop.first }}
{{- '{"name": ' + its.name | tojson + ', "arguments": ' + its.arguments | tojson }}
{{- ', "id": ' + call.id | tojson + '}' }}
{%- endfor %}
{{- ']' }}"""
_AS_MARKS = Template("""
{%- for call in message.tool_calls %}
{{- '[TOOL_CALLS]' + call.function.name$id + '[ARGS]' + call.function.arguments | tojson }}
{%- endfor %}""")


def chat_template(version: int, *, thinks: bool) -> str:
    """Jinja. version: one of VERSIONS. thinks: has the vocabulary marks for thinking?"""
    by_id = _ALL_NINE if version < 13 else ""
    marks = _AS_MARKS.substitute(id=" + '[CALL_ID]' + call.id" if by_id else "")
    return _TEXT.substitute(
        first="" if by_id else " and asked.at is none",
        thinking=_THINKING if thinks else "",
        calls=by_id + (_AS_JSON if version < 11 else marks),
        result=" + message.tool_call_id + '[TOOL_CONTENT]'" if by_id else "",
    )
