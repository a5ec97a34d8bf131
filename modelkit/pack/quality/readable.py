"""Which sources formats can be searched for. Decided before anything is loaded, in the words of the user."""

from modelkit.errors import PlanError
from modelkit.modelfile import Quantizing
from modelkit.pack.part import Part
from modelkit.source.prequantized import MlxWeights, Mxfp4Blocks


def refuse_packed(part: Part, asked: Quantizing) -> None:
    """Raise PlanError for a source in MLX's own packing, or GPT-OSS's blocks: what `create` does not store in
    another format, it finds none for. And for a model that writes nothing by which formats could be told
    apart. Nothing is loaded for it.
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
    if not isinstance(kind, MlxWeights | Mxfp4Blocks):
        return
    origin = part.source.inventory.origin
    left = "without `auto` the draft stays as it is" if asked.auto else "leave the target out"
    raise PlanError(
        f"{origin} is quantized already; it cannot be stored as {asked}",
        hint=f"Start from the unquantized model, or {left}.",
    )
