"""What a template may name: filters, and the attributes and methods of plain values.

Everything a chat template has been seen to need. A method of a text or a list that can make much of little
has its row in `growth`.
"""

_FILTERS = """
    abs attr batch capitalize center count d default dictsort e escape first float format groupby indent int
    items join last length list lower map max min reject rejectattr replace reverse round safe select
    selectattr slice sort string sum title trim truncate unique upper wordcount wordwrap
"""

_TEXT_METHODS = """
    capitalize casefold center count endswith expandtabs find index isalnum isalpha isascii isdecimal isdigit
    isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip partition
    removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith
    strip swapcase title upper zfill
"""

FILTERS = frozenset(_FILTERS.split())

ATTRIBUTES: tuple[tuple[type, frozenset[str]], ...] = (
    (str, frozenset(_TEXT_METHODS.split())),
    (dict, frozenset({"copy", "get", "items", "keys", "values"})),
    (list, frozenset({"copy", "count", "index"})),
    (tuple, frozenset({"count", "index", "grouper", "list"})),  # the last two: what `groupby` yields
)
