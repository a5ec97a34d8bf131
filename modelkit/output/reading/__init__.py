"""Reading what a model writes while it writes it.

    feed                          the characters that have come and are not read yet
    marks                         where the first of some marks stands in a text that still grows
    objects, marked_call, python  calls as JSON objects, as names between marks, as Python's calls
    tags, values, literals        arguments in every style, written as JSON
    schemas, validation           what a tool's schema says of an argument, and whether a value fits it

Everything here is a generator that is resumed when more has come: it reads on where it stopped, and looks at
no character twice but for the few that may yet become a mark.
"""
