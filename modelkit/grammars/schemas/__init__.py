"""A JSON schema, read: nothing here changes what it says.

traversal            where the schemas within a schema stand
variant              a plain description of values
merging              two of them as one
variants             all that is said of a value, as a choice of such
satisfiability       has a value any way to be
value_graph          all values that a schema describes, and what each needs
infinite_values      values that require themselves
numbers              numbers that the library can be held to
depth                how deep a schema goes when its references are followed
limits               what is refused before a grammar is made of it
simple               schemas of tools that need no trial by themselves
loosening            a tool's schema with as little left out as makes it usable
"""
