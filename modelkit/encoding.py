"""How texts that people have written are read from files, pipes and arguments."""

UTF_8 = "utf-8-sig"
"""A byte order mark, as editors of Windows put in front, is none of the text."""
