"""Messages to prompt text.

`message` holds what a conversation is and reads it from outside; `template` renders it through a model's own
jinja template, inside the guard of `sandbox`, `budget` and `growth`; `capabilities` finds out what a template
can do by rendering with it; `builtin` are the templates that modelkit brings. Import the module you need:
jinja2 is loaded by `sandbox` alone.
"""
