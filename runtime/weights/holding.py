"""In which form a network holds its tensors, how much memory that takes, and putting them there.

Three things may happen to a fitted tensor: it stays as it is stored (GGUF's blocks, too), it becomes another
float type, or a packed matrix becomes plain floats. What it takes and what is done follow the same rules
here, so that a forecast made from headers alone is what loading will hold.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.blocks.stored import KeptBlocks
from runtime.cpu.native.mapped_weights import dense
from runtime.errors import WeightMismatch
from runtime.records import dataclass
from runtime.weights.fit import parameters_of, replace_module
from runtime.weights.packing import Packing, unpacked

_FLOATS = (mx.float32, mx.float16, mx.bfloat16)
_MATRIX = ("weight", "scales", "biases")


def _none(_: Any) -> bool:
    return False


def _no_class(_: nn.Module) -> None:
    return None


def _no_matter(_: int) -> None:
    return None


def _as_it_is(module: nn.Module, _: mx.array) -> nn.Module:
    return module


@dataclass(frozen=True, slots=True)
class Holding:
    """What becomes of the tensors of a network."""

    dtype: mx.Dtype | None = None
    """That of floating ones; None: their own."""
    keeps: Callable[[str], bool] = _none
    """Tensors, by name, that never become narrower."""
    as_stored: Callable[[nn.Module], bool] = _none
    """Modules whose matrix stays as it is stored whatever `dtype` is: products read it so."""
    expands: Callable[[nn.Module], bool] = _none
    """Packed modules that become plain ones of `dtype`: their products would be slow."""
    stay: tuple[str, ...] = ()
    """Types of GGUF whose blocks stay as they lie, where a module can be made of them."""
    of_blocks: Callable[[nn.Module], Callable[..., nn.Module] | None] = _no_class
    """What makes the module that takes a plain one's place; None where it needs numbers."""
    blocks: Mapping[int, KeptBlocks] = field(default_factory=dict[int, KeptBlocks])
    """Weights that are blocks, by the id of what stands in for them."""
    orders: Mapping[int, mx.array] = field(default_factory=dict[int, mx.array])
    """Of inputs, by the ids of the codes that lie in them."""
    with_order: Callable[[nn.Module, mx.array], nn.Module] = _as_it_is
    """What makes the module that takes such a matrix's place."""

    def block_of(self, module: nn.Module, own: Mapping[str, mx.array]) -> KeptBlocks | None:
        """The blocks that a module of these tensors keeps."""
        kept = self.blocks.get(id(own.get("weight")))
        return kept if kept is not None and self.of_blocks(module) is not None else None


def fill(
    network: nn.Module,
    weights: dict[str, mx.array],
    holding: Holding,
    advance: Callable[[int], object] = _no_matter,
) -> None:
    """Put fitted tensors in place, evaluated one by one; empties `weights` on the way. advance: called after
    each with its bytes; what it raises ends the filling. Raises WeightMismatch for an order of inputs that is
    none.
    """
    for path, module in list(network.named_modules()):
        own = {name: weights.pop(full) for name, full in _own_names(path, module) if full in weights}
        as_stored = holding.as_stored(module)
        module = _of_form(network, path, module, own, holding, advance)
        for name, array in own.items():
            if as_stored and name in _MATRIX:
                module[name] = dense(array)
            else:
                full = f"{path}.{name}" if path else name
                array = array.astype(_type(array.dtype, holding, full))
                # CUDA's gathered product takes the distance of two experts from the shape of their stack, and
                # half of one, as files have gate and up together, has another.
                module[name] = dense(array) if array.ndim > 2 else array
            # One at a time: a cast's stored twin is freed before the next tensor is read.
            mx.eval(module[name])
            advance(module[name].nbytes)


def _of_form(
    network: nn.Module,
    path: str,
    module: nn.Module,
    own: dict[str, mx.array],
    holding: Holding,
    advance: Callable[[int], object],
) -> nn.Module:
    """The module that takes these tensors in the form in which they are held: this one, or one that has taken
    its place by now. `own` is changed to what that one takes.
    """
    stand_in = holding.blocks.get(id(own.get("weight")))
    if (kept := holding.block_of(module, own)) is not None:
        make = holding.of_blocks(module)
        assert make is not None
        module = make(kept.kind, kept.rows, module.get("bias"))
        replace_module(network, path, module)
        own["weight"] = kept.rows
    elif stand_in is not None:
        own["weight"] = stand_in.numbers
    order = holding.orders.get(id(own.get("weight")))
    if order is not None:
        _check_order(path, order)
    if "scales" in own and holding.expands(module):
        return _expanded(network, path, module, own, holding.dtype, order)
    if order is not None:
        module = holding.with_order(module, order)
        replace_module(network, path, module)
        advance(order.nbytes)
    return module


def held_bytes(network: nn.Module, fitted: Mapping[str, mx.array], holding: Holding) -> int:
    """What `fill` will hold of these tensors. Nothing is read."""
    return sum(nbytes for _, nbytes in held_tensors(network, fitted, holding))


def held_tensors(
    network: nn.Module, fitted: Mapping[str, mx.array], holding: Holding
) -> Iterator[tuple[str, int]]:
    """The same for each tensor, by its name in the network."""
    for path, module in network.named_modules():
        own = {name: fitted[full] for name, full in _own_names(path, module) if full in fitted}
        as_stored = holding.as_stored(module)
        if (kept := holding.block_of(module, own)) is not None:
            own["weight"] = kept.rows
        order = holding.orders.get(id(own.get("weight")))
        if "scales" in own and holding.expands(module):
            codes = own.pop("weight")
            own = {name: array for name, array in own.items() if name not in _MATRIX}
            yield f"{path}.weight", codes.size * 32 // module.bits * (holding.dtype or mx.float32).size
        elif order is not None:
            yield f"{path}.order", order.nbytes
        for name, array in own.items():
            full = f"{path}.{name}" if path else name
            kept = as_stored and name in _MATRIX
            yield full, array.size * (array.dtype if kept else _type(array.dtype, holding, full)).size


def weight_bytes(network: nn.Module) -> int:
    """Bytes of all parameters as they are held now."""
    return sum(array.nbytes for array in parameters_of(network).values())


def _type(stored: mx.Dtype, holding: Holding, name: str) -> mx.Dtype:
    wanted = holding.dtype
    if wanted is None or stored not in _FLOATS or (wanted.size < stored.size and holding.keeps(name)):
        return stored
    return wanted


def _own_names(path: str, module: nn.Module) -> Iterator[tuple[str, str]]:
    for name, value in module.items():
        if isinstance(value, mx.array):
            yield name, f"{path}.{name}" if path else name


def _check_order(path: str, order: mx.array) -> None:
    """What names an input twice, or one that there is not, would have foreign memory read."""
    places = mx.broadcast_to(mx.arange(order.shape[-1], dtype=order.dtype), order.shape)
    if not mx.array_equal(mx.sort(order, axis=-1), places).item():
        raise WeightMismatch([f"{path}.order does not name each input once"])


def _expanded(
    network: nn.Module,
    path: str,
    module: Any,
    own: dict[str, mx.array],
    dtype: mx.Dtype | None,
    order: mx.array | None,
) -> nn.Module:
    """The plain twin of a quantized module, its weight dequantized; takes scales and biases out of `own`."""
    codes, scales, biases = own.pop("weight"), own.pop("scales"), own.pop("biases", None)
    packing = Packing(module.bits, module.group_size, module.mode)
    weight = unpacked(codes, scales, biases, packing, dtype, order)
    plain = _plain(module, weight.shape, "bias" in own)
    replace_module(network, path, plain)
    own["weight"] = weight
    return plain


def _plain(module: Any, shape: tuple[int, ...], bias: bool) -> nn.Module:
    """An unquantized module for a weight of this shape. Modules of our own say themselves (`to_plain`)."""
    if hasattr(module, "to_plain"):
        return module.to_plain()
    rows, width = shape
    if isinstance(module, nn.QuantizedEmbedding):
        return nn.Embedding(rows, width)
    return nn.Linear(width, rows, bias)
