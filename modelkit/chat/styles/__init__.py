"""Output styles: how families of models mark what they think, what they answer and which tools they call.

`style` is the record; the rows lie in `templates/styles.json`. What splits an answer, what constrains one and
what chooses a row all read the same record, so they cannot disagree about a mark.
"""
