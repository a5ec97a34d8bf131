"""Output styles: how families of models mark what they think, what they answer and which tools they call.

    style            the record; `reading` makes records of JSON
    table            the rows, which lie in `templates/styles.json`
    choice           which style a model has
    probe, derive    a style for a template that no row knows, derived from what it writes
    thinking         which switches for thinking a template has
    opening, ends    marks of an answer that the prompt has written already; prompts without thinking
    writing          calls of tools as the model would write them

What splits an answer, what constrains one and what chooses a row all read the same record, so they cannot
disagree about a mark.
"""
