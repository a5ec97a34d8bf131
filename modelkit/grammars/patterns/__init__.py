"""Patterns (regular expressions of ECMA-262) and formats of texts.

syntax           a pattern, read into its parts
automata         sets of texts as automata: their complements and intersections
determinizing    patterns as automata
elimination      an automaton as a pattern again; patterns without lookarounds
full_match       a pattern that is searched for, as an expression of whole texts
formats          date-time, uuid, email and their like, as expressions
text_sets        which texts several patterns, formats and lengths allow at once
"""
