"""What a model writes, told apart: thinking, text, and calls of tools.

`events` are what comes out; a splitter makes them of an answer's pieces as these come. Everything above
(Python's streams, the conversation in the terminal, every HTTP dialect) only words events in its own way.
"""
