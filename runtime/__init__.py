"""The lower floor: arrays and token ids. Nothing here knows text, files' meaning to users, or sockets.

`modelkit` stands on this package; it never imports `modelkit`. Users import `modelkit` only.
"""

# `runtime` is a common name: modelkit checks this mark to know that the package it got is its own.
PART_OF = "modelkit-mlx"
