"""What transformers' classes call the matrices of a package, whose files may have any spelling of theirs.

Files are taken as MLX has them (`pack.planning.experts.gather`), and MLX's names are undone: what it cuts is
whole, and experts are the stacks that transformers 5 holds, or one by one where no class of its own runs the
family.
"""

from collections.abc import Mapping

from modelkit.pack.planning.experts import gather
from modelkit.pack.planning.families import checkpoint_of
from modelkit.source.inventory import Inventory
from runtime.config.text import text_block
from runtime.models.registry.names import module_name
from runtime.nn.adapters.low_rank import HEAD
from runtime.tensors.checkpoint import TRUNK, Checkpoint
from runtime.tensors.names import spelled
from runtime.tensors.towers import text_name, unwrapped

Shape = tuple[int, ...]

_OF_TRANSFORMER = ("h.", "blocks.", "wte.", "wpe.", "word_embeddings", "ln_f.")
_BARE = (
    *((part, "transformer.") for part in _OF_TRANSFORMER),
    *((part, TRUNK) for part in ("embed_tokens.", "layers.", "norm.")),
)
"""How names begin in files of a trunk alone, and what stands before them in a class with a head."""


_CHUNKS = ".chunk_experts."
"""GroveMoE's small experts, whose class has a module for each."""


def in_transformers(inventory: Inventory, *, writes: bool) -> dict[str, Shape]:
    """name -> shape, outputs first, of all tensors of a checkpoint. writes: has its class a head?"""
    files = checkpoint_of(inventory.config)
    own = [tensor for name, tensor in inventory.tensors.items() if not name.endswith(files.spare)]
    matrices = {one.name: one.shape for one in gather(own, files, {})}
    wrapped = text_block(inventory.config) or module_name(inventory.config) == "multimodal"
    inside = files.inside if wrapped else None
    found: dict[str, Shape] = {}
    for name, shape in matrices.items():
        for own, its in _whole(name, shape, files, matrices, wrapped=inside is not None):
            found[called(own, files, inside, writes=writes)] = its
    return found


def called(name: str, files: Checkpoint, inside: tuple[str, str] | None, *, writes: bool = True) -> str:
    """What transformers' class calls what is called so, but for what MLX cuts and stacks. inside: a wrapper's
    beginnings of names.
    """
    if inside is not None:
        bare = unwrapped(name)
        name = inside[bare.startswith(HEAD)] + bare
    elif writes:
        name = text_name(name)
        name = next((trunk for start, trunk in _BARE if name.startswith(start)), "") + name
    return spelled(name, (*((ours, theirs) for theirs, ours in files.renamed), *files.modules))


def _whole(
    name: str, shape: Shape, files: Checkpoint, matrices: Mapping[str, Shape], *, wrapped: bool
) -> list[tuple[str, Shape]]:
    """What one of MLX's tensors is, or is the first part of; nothing for other parts."""
    for fused, (first, second) in files.halved:
        if first in name:
            return [(name.replace(first, fused), (2 * shape[0], *shape[1:]))]
        if second in name:
            return []
    owner, home, matrix = name.removesuffix(".weight").rpartition(f".{files.experts}.")
    shared, chunks, leaf = name.rpartition(_CHUNKS)
    if chunks and len(shape) == 3:
        return [(f"{shared}{_CHUNKS}{i}.{leaf}", shape[1:]) for i in range(shape[0])]
    if not home or len(shape) != 3 or not name.endswith(".weight"):
        return [(name, shape)]
    count, rows, columns = shape
    plain = {its: theirs for theirs, its in files.matrices}.get(matrix, matrix)
    if files.piled:
        return []  # PEFT cannot wrap the module that has them all, whose parameters its owner reads
    apart = next((theirs for theirs, usual in files.stacks if usual.endswith(".experts.gate_proj")), None)
    if apart is not None and not wrapped:  # a class of transformers' own has the wrapper alone
        stored = next(theirs for theirs, usual in files.stacks if usual.endswith(f".experts.{plain}"))
        return [(f"{owner.removesuffix('.mlp')}{stored}", shape)]
    if files.singles:
        return [(f"{owner}.experts.{i}.{plain}.weight", shape[1:]) for i in range(count)]
    if plain == "gate_proj":
        return [(f"{owner}.experts.gate_up_proj", (max(count, files.every), 2 * rows, columns))]
    if plain == "up_proj" and f"{owner}{home}gate_proj.weight" in matrices:
        return []
    return [(f"{owner}.experts.{plain}", shape)]
