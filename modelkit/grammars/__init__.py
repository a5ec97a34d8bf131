"""Constrained decoding: a form that an answer must have, as a grammar for llguidance.

From what everything else stands on up to what a model is opened with:

    forms                  what a request asks an answer's form to be, checked on its face
    thread_switching       work that lets other threads in
    patterns/              regular expressions and formats of texts, as automata and as expressions
    rules/                 the text of a grammar, rule by rule; raw texts and JSON schemas in it
    schemas/               a JSON schema, read: where its parts stand, which values it has, its limits
    rewriting/             a JSON schema, rewritten: conditions, references and exclusions as plain choices
    notations/             grammars that users write, in GBNF and in Lark's syntax
    calls/                 calls of tools and their arguments, as output styles write them
    answers/               a whole answer: thinking, text, calls and a form
    compiling/             all of these compiled for one model's vocabulary, and the masks of an answer
"""
