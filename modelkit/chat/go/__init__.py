"""Templates in Go's language, as Ollama's Modelfiles have them, turned into jinja.

`convert.to_jinja` reads one and writes a jinja template that makes the same text; it runs under the same
guard as any other (`modelkit.chat.guarded`), can be looked at with `show --template`, and is probed, too.
What Go does and jinja does not is in `functions`, which the guard offers to templates under names that begin
with `go_`: so all templates load these, and only Go's own the rest.

    tree       what a parsed template is made of
    lexer      text and actions, with their places          parser    tree of them
    emitter    tree to jinja                                legacy    templates of one turn (.System, .Prompt)
    values     messages and tools as the data that Ollama gives to a template
    functions  Go's own functions, on that data             printing  values as Go writes them, JSON included

Left out, and refused with line and column: `define`, `template`, `block`, the functions html, js, urlquery
and call, and characters in single quotes. No template of Ollama's library has them.
"""
