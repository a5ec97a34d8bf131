"""Which sources formats can be searched for. Decided before anything is loaded, in the words of the user."""

from modelkit.errors import PlanError
from modelkit.modelfile import Quantizing
from modelkit.pack.part import Part
from modelkit.source.prequantized import FloatWeights, GgufWeights
from runtime.blocks.types import BLOCK_TYPES


def refuse_packed(part: Part, asked: Quantizing) -> None:
    """Raise PlanError unless the source is plain floats: only those can be read without loss. And for a model
    that writes nothing by which formats could be told apart. Nothing is loaded for it.
    """
    from runtime.models import describe
    from runtime.speculate.pair import runs_inside

    kind, described = part.source.kind, describe(part.plan.config)
    if runs_inside(described):
        raise PlanError(
            "the draft runs inside its target only, so it cannot be tried by itself",
            hint="Name its format, such as q4.",
        )
    if not described.writes:
        raise PlanError(
            f"{part.source.inventory.origin} makes embeddings: no formats are searched for by what it writes",
            hint="Name a format, such as q8.",
        )
    if isinstance(kind, FloatWeights):
        return
    origin = part.source.inventory.origin
    if isinstance(kind, GgufWeights):
        types = [name.upper() for name in kind.types() if name in BLOCK_TYPES]
        if not types:
            return
        raise PlanError(
            f"{origin} is quantized already ({', '.join(types)}); it cannot be stored as {asked}",
            hint="Start from the unquantized model. Where there is none, decode it first: create a package "
            f"of it with -q bf16, and name that in {_line(part)}; formats are found for what is left of its "
            "numbers.",
        )
    if part.plan.converts:
        raise PlanError(
            f"{origin} has to be converted before it can be read, so no formats can be searched for",
            hint=f"Make a package of it first, with -q bf16, and name that in {_line(part)}.",
        )
    left = "without `auto` the draft stays as it is" if asked.auto else "leave the target out"
    raise PlanError(
        f"{origin} is quantized already; it cannot be stored as {asked}",
        hint=f"Start from the unquantized model, or {left}.",
    )


def _line(part: Part) -> str:
    return "DRAFT" if part.plan.role == "draft" else "FROM"
