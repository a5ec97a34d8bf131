"""What an answer may look like when it thinks, calls tools and follows a form: one grammar for all of it.

`shape.py` checks what a request asks for, `answer.py` and `messages.py` put it together from a style's marks.
`calls.py` writes calls, `values.py` and `tagged.py` their arguments, and `rules.py` the text of the grammar,
in the Lark dialect of llguidance. `compiler.py` compiles it.
"""
