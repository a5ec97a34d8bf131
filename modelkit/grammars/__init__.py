"""Constrained decoding: a form that an answer must have, as a grammar for llguidance.

A whole answer (thinking, text, calls of tools, a form):
    shape, forms           what a request asks for, checked
    answer, messages       its grammar, from the marks of an output style; that of gpt-oss's messages
    calls, values, tagged, raw, names, tools    calls of tools and their arguments, as styles write them
    budget, again          thinking that ends after so many tokens, and does not begin again
    rules, digits          the text of a grammar, in the Lark dialect of llguidance
    attempts, simple       the answer's grammar, compiled; schemas that need no trial by themselves
    together, loosening    tools whose schemas are tried in one grammar; schemas with parts left out
JSON schemas, read:
    prepared               all steps from a schema to one that says the same in words of the library
    dialects, keywords, linked, led, places, circles, depth    older dialects, keywords, references
    described, ways, cases, conditions, opposites, exclusive, evaluated    allOf, anyOf, oneOf, not, if,
                           unevaluated members: rewritten as plain choices
    members, named, listed, once, unlisted, numbers, texts     objects, lists, numbers and texts
    possible, impossible, endless, sound, unheld    what no value fits, has no end, or costs too much
    spelled                the schema as the library takes it
Patterns (regular expressions):
    expressions, patterns, plain_digits, beside     ECMA-262 patterns and formats, read and rewritten
    automata, unfolded                              patterns as automata, and back
Other forms, and compiling:
    gbnf, lexemes, ending, never, whole     GBNF and Lark grammars, checked and converted
    compiler, native, refusals, aside       compiling, its errors, and work that lets other threads in
    grammar, vocabulary                     a compiled form of one model; its vocabulary
"""
