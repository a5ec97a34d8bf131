"""BitNet's ternary matrices, or floats that are made so when they are read (`runtime.models.bitnet`)."""

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.claims import claimed_method
from modelkit.source.foreign import FLOAT_HINT
from modelkit.source.inventory import Inventory
from modelkit.source.tensor import FLOATS
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class BitNetWeights:
    """A checkpoint that is run as it is, and never rounded again."""


def read_bitnet_weights(inventory: Inventory) -> BitNetWeights | None:
    """None where config.json does not say so.

    Raises MalformedFile for bytes without a number that they are times, UnsupportedSource for what is neither
    bytes nor floats.
    """
    config, tensors, origin = inventory.config, inventory.tensors, inventory.origin
    if config.get("model_type") != "bitnet" or claimed_method(config) != "bitnet":
        return None
    for name, tensor in tensors.items():
        if tensor.dtype == "U8" and name.endswith(".weight") and len(tensor.shape) == 2:
            scale = tensors.get(f"{name}_scale")
            if scale is None or scale.dtype not in FLOATS or scale.shape not in ((), (1,)):
                raise MalformedFile(f"{origin}: `{name}` is U8, and `{name}_scale` is not a number")
        elif tensor.dtype not in FLOATS:
            raise UnsupportedSource(
                f"{origin} is quantized with BitNet, and `{name}` is {tensor.dtype}", hint=FLOAT_HINT
            )
    return BitNetWeights()
