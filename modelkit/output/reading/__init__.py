"""Reading what a model writes while it writes: `feed` holds what has come, `values` and `tags` read arguments
of calls in every style and write them as JSON.

Everything here is a generator that is resumed when more has come: it reads on where it stopped, and looks at
no character twice but for the few that may yet become a mark.
"""
