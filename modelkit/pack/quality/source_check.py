"""Which sources formats can be searched for. Decided before anything is loaded, in the words of the user."""

from modelkit.errors import PlanError
from modelkit.modelfile import Quantizing
from modelkit.pack.part import Part
from modelkit.source.prequantized import MlxWeights, Mxfp4Blocks


def refuse_packed(part: Part, asked: Quantizing) -> None:
    """Raise PlanError for a source in MLX's own packing, or GPT-OSS's blocks: what `create` does not store in
    another format, it finds none for. And for a model that writes nothing by which formats could be told
    apart, where no text is given. Nothing is loaded for it.
    """
    from runtime.models import describe
    from runtime.speculate.pair import runs_inside

    kind, described = part.source.kind, describe(part.plan.config)
    if runs_inside(described):
        raise PlanError(
            "the draft runs inside its target only, so it cannot be tried by itself",
            hint="Name its format, such as q4.",
        )
    origin = part.source.inventory.origin
    if not described.writes and asked.calibration is None:
        raise PlanError(
            f"{origin} makes embeddings, and writes no text that formats could be tried on",
            hint="Give one with a text on each line: --calibration FILE, or `QUANTIZE 4.5 bits from FILE`.",
        )
    if not isinstance(kind, MlxWeights | Mxfp4Blocks):
        return
    left = "without `auto` the draft stays as it is" if asked.auto else "leave the target out"
    raise PlanError(
        f"{origin} is quantized already; it cannot be stored as {asked}",
        hint=f"Start from the unquantized model, or {left}.",
    )
