"""Grammars that users write, in GBNF or in Lark's syntax: checked, and made ready for the library.

gbnf                 GBNF in Lark's syntax, with the meaning that it has to llama.cpp
gbnf_terminals       which of its rules may be terminals
outline              names, signs and schemas of a grammar, and how deep its rules go
limits               what is refused before a grammar is compiled
endless_rules        rules that never come to an end
empty_terminals      terminals that no text fits
ascii_digits         `\\d` as 0 to 9
"""
