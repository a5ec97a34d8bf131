"""Is this a model that runs, and which one? The one answer that `create` and opening a folder both follow.

    decide       a source and a wanted format -> its config and the fate of every tensor
    check_parts  `checks`: target and draft, each by itself and together
    set_embedding_types   `ready`: everything else that a request needs

A folder that is run is what its package would be: the same config, the same tensors, or the same refusal.
"""

from collections.abc import Collection

from modelkit.errors import LoadError
from modelkit.pack.part import Part
from modelkit.pack.planning.plan import plan
from modelkit.pack.planning.plan_types import Role
from modelkit.pack.sources import Source
from modelkit.pack.tying import settle_head, settle_headless, settle_lone_head
from modelkit.source.prequantized import Fp8Weights
from runtime.quant import Format


def decide(
    source: Source,
    role: Role,
    wanted: Format | None = None,
    *,
    settled: bool = False,
    spare: str | None = None,
    plain: bool = False,
    rewrite: bool = False,
    repacked: Collection[str] = (),
) -> Part:
    """settled: an earlier `decide` made this source, so no weight has to be read again for its head; spare:
    what it found. plain, rewrite, repacked: as for `plan`.
    """
    if not settled:
        source, spare = settle_head(settle_lone_head(settle_headless(source)))
    decided = plan(
        source.inventory,
        source.kind,
        wanted,
        role=role,
        spare=spare,
        plain=plain,
        rewrite=rewrite,
        repacked=repacked,
    )
    return Part(source, decided, spare=spare)


def refuse_unconverted(part: Part) -> None:
    """Raise LoadError for weights that run only after `create` has converted them."""
    if isinstance(part.source.kind, Fp8Weights):
        origin = part.source.inventory.origin
        raise LoadError(
            f"{origin} stores its weights as FP8, which cannot be run as it is",
            hint="`modelkit create` converts them: make a package of it, with FROM in a Modelfile.",
        )
