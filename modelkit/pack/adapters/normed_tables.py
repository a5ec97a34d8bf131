"""Tables whose rows transformers' class norms within their module: PEFT, which wraps the module, adds to what
comes out of the norm, or leaves it out for rows of their own. Here what is added to a table goes through it.
"""

from modelkit.source.adapters.value import AdapterSource, refuse
from runtime.models import Described
from runtime.quoting import shown

_TABLE = "embed_tokens.weight"


def refuse_behind_norms(adapter: AdapterSource, described: Described) -> None:
    """Raises SourceError for a pair or rows of such a table. A parameter's pair acts before the norm."""
    if adapter.kind != "peft" or not described.checkpoint.norms_rows:
        return
    names = [pair.names[0] for pair in adapter.pairs if pair.table] + [one.name for one in adapter.rows]
    tables = [shown(name.removesuffix(".weight")) for name in names if name.endswith(_TABLE)]
    problems = [
        f"PEFT adds to {table} behind the norm of its rows, which is not computed here" for table in tables
    ]
    refuse(
        adapter.label, problems, 'Train it without embed_tokens, or with `modules_to_save=["embed_tokens"]`.'
    )
