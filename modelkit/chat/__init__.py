"""Messages to prompt text.

`message` holds what a conversation is and reads it from outside; `template` renders it through a model's own
jinja template, inside the room `guarded`; `placed` tells what of a conversation a template leaves out;
`capabilities` finds out what a template can do by rendering with it; `find` finds the template of a model;
`builtin` are the templates that modelkit brings. Import the module you need: jinja2 is loaded by `guarded`
alone.
"""
