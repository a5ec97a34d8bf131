"""Grammars compiled for one model, and the masks of its answers.

compiler         compiles forms and whole answers, and keeps them
attempts         a whole answer's grammar, and why the library does not take it
joint_trial      schemas of several tools tried in one grammar
matchers         what llguidance makes of a form: a matcher, or the sentence in which it is refused
refusals         that sentence in words for who wrote the form
grammar          a compiled form, and where an answer stands in it
digit_limit      numbers that come to an end
vocabulary       a vocabulary as the library takes it
"""
