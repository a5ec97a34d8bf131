"""Calls of tools, as the grammar's rules: each output style writes them in a form of its own.

tools                 the tools of a request, and their schemas
calls                 a call: its head, its arguments, its end; one behind the other
arguments             arguments as JSON, in Python's syntax and as a dict
tagged_arguments      arguments one by one in marks of their own
members               properties of objects and elements of lists, in order
argument_names        names that a style cannot write
"""
