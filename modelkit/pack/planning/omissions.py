"""Which tensors of a source get a decision of their own, which are left out of what is written anew, and how
the user is told.
"""

from collections.abc import Collection

from modelkit.pack.planning.families import checkpoint_of
from modelkit.pack.planning.notes import counted
from modelkit.source.inventory import Inventory
from modelkit.source.tensor import TensorInfo


def to_decide(inventory: Inventory, folded: Collection[str]) -> list[TensorInfo]:
    """The tensors that get a decision of their own: not folded into another, not to be left out."""
    out = {*folded, *masks(inventory), *_copies(inventory), *_unread(inventory)}
    return [tensor for name, tensor in inventory.tensors.items() if name not in out]


def masks(inventory: Inventory) -> list[str]:
    """Attention masks and rotary tables that old checkpoints store, Phi-4's adapters for images and sound,
    DeepSeek V4's choice of experts for images, ERNIE's experts for these, and Ouro's gates; MLX has no module
    for them.
    """
    files = checkpoint_of(inventory.config)
    return [name for name in inventory.tensors if files.is_spare(name)]


def is_in_the_way(inventory: Inventory) -> bool:
    """Can a file not stay as it is? Where a tensor has a type that MLX does not read, and with it no other
    one of its file (of float64 become float32; nothing else takes C64 than what is left out), and where one
    goes by another name here (`tying`).
    """
    named = {one.name for file in inventory.weights for one in file.header.tensors}
    if not inventory.tensors.keys() <= named:
        return True
    complexes = (name for name in masks(inventory) if inventory.tensors[name].dtype == "C64")
    return any(complexes) or bool(_doubles(inventory))


def _doubles(inventory: Inventory) -> list[str]:
    return [name for name, tensor in inventory.tensors.items() if tensor.dtype == "F64"]


def _copies(inventory: Inventory) -> list[str]:
    """Names under which a file repeats a tensor that it has."""
    original, endings = checkpoint_of(inventory.config).copies
    if original not in inventory.tensors:
        return []
    return [name for name in inventory.tensors if name.endswith(endings)]


def _unread(inventory: Inventory) -> list[str]:
    """What stands beside an encoder and is for other tasks."""
    files = checkpoint_of(inventory.config)
    return [name for name in inventory.tensors if files.never_read(name)]


_OF_MEDIA = (".lora_", ".bias_vl", ".experts.", ".vision_moe.", ".gate.weight_1")


def left_out_notes(inventory: Inventory, left: Collection[str]) -> tuple[str, ...]:
    spare = masks(inventory)
    pairs = [name for name in spare if any(part in name for part in _OF_MEDIA)]
    gates = [name for name in spare if "exit_gate." in name]
    buffers = [name for name in spare if name not in (*pairs, *gates)]
    notes = [f"{head} is left out: it repeats the embedding, to which config.json ties it" for head in left]
    if buffers:
        notes.append(f"{counted(len(buffers), 'stored buffer')} left out: positions say the same")
    if pairs:
        notes.append(f"{counted(len(pairs), 'tensor')} left out: what images and sound have besides")
    if gates:
        notes.append(f"{counted(len(gates), 'tensor')} left out: gates of fewer passes, and all are made")
    doubles = len(_doubles(inventory)) - sum(inventory.tensors[name].dtype == "F64" for name in buffers)
    if doubles:
        notes.append(f"{counted(doubles, 'tensor')} float64, and float32 here, the widest that MLX computes")
    unread = _unread(inventory)
    if unread:
        notes.append(f"{', '.join(unread)} left out: embeddings are made of hidden states alone")
    copies = _copies(inventory)
    if copies:
        original = checkpoint_of(inventory.config).copies[0]
        notes.append(f"{', '.join(copies)} left out: {original} says the same, or nothing reads it")
    return tuple(notes)
