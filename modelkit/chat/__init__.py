"""Messages to prompt text.

    message                 a message, read from outside; `plain_data`: data that templates may get
    find, builtin           which template a model has; those that modelkit brings
    template                a model's own jinja template, rendered inside the room `guarded`
    go                      templates in Go's language (Ollama's), translated to jinja
    rendering               how one request's conversation becomes text
What a template can do, found out by rendering with it:
    capabilities, habits    features; the form in which it takes messages. `time_limit`: how long it is tried
    adaptation, parts       a conversation in that form
    placement               parts of a request that the template leaves out
    styles                  how its model marks thinking, text and calls of tools
A conversation that is longer than the context:
    truncation, turns       what is left out, by whole turns

Import the module you need: jinja2 is loaded by `guarded` alone.
"""
