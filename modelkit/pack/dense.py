"""Dense modules of sentence-transformers: what a text's pooled vector passes through, each in a folder of its
own (`2_Dense/config.json`, `2_Dense/model.safetensors`).

A package keeps both files as they are, so no format rounds their weights. An activation is named by its class
in torch; the name only selects a row here, and no code is imported by it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelkit.errors import MalformedFile, SourceError
from modelkit.source.safetensors import Header, read_header
from modelkit.source.strict_json import read_json
from modelkit.source.tensor import TensorInfo
from modelkit.source.tree import MODULE_WEIGHTS, Files, open_regular
from runtime.quoting import quoted, shown
from runtime.records import dataclass

if TYPE_CHECKING:
    import numpy as np

    from runtime.nn.feed_forward.dense import Activation, Weights

_CONFIG_BYTES = 1 << 16
_MOST = 1 << 20
_ACTIVATIONS: "Mapping[str, Activation]" = {
    "torch.nn.modules.linear.Identity": "identity",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
}
_SENTENCE = "sentence_embedding"
_FLOATS = ("F32", "F16", "BF16")


class NotComputed(Exception):
    """Something that files ask for."""


@dataclass(frozen=True, slots=True)
class DenseFile:
    """One module, by its files' headers."""

    folder: str
    inputs: int
    """Elements of a vector that enters."""
    outputs: int
    """And of what comes out."""
    activation: "Activation"
    weight: TensorInfo
    """[outputs, inputs]."""
    bias: TensorInfo | None
    """[outputs]."""
    header: Header

    @property
    def nbytes(self) -> int:
        """In memory, in float32."""
        return 4 * self.outputs * (self.inputs + (self.bias is not None))

    def read(self) -> "Weights":
        """Its weights, in float32. Raises SourceError."""
        from runtime.nn.feed_forward.dense import Weights  # with it comes MLX, which a plan needs not

        label = f"{self.folder}/{MODULE_WEIGHTS}"
        with open_regular(self.weight.path, label) as file:
            if not self.header.unchanged(file.fileno()):
                raise SourceError(f"{label} changed while it was being read", hint="Run the command again.")
            bias = None if self.bias is None else _array(file, self.bias)
            return Weights(_array(file, self.weight), bias, self.activation)


def read_dense(files: Files, folder: str) -> DenseFile:
    """Its files' headers. Raises MalformedFile; NotComputed in words about the model."""
    name, weights = f"{folder}/config.json", f"{folder}/{MODULE_WEIGHTS}"
    for one in (name, weights):
        if one not in files:
            raise NotComputed(f"its module {shown(folder)} needs {shown(one)}, which is not there")
    config = read_json(files[name], limit=_CONFIG_BYTES)
    inputs, outputs = (_size(config, key, name) for key in ("in_features", "out_features"))
    biased = config.get("bias", True)
    if type(biased) is not bool:
        raise MalformedFile(f"{name}: bias is {quoted(biased)}, expected true or false")
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, _SENTENCE):
            raise NotComputed(f"{name}: {key} is {quoted(config[key])}; {_SENTENCE} is what can be computed")
    if config.get("use_residual") not in (None, False):
        raise NotComputed(f"{name}: use_residual adds what enters to what comes out, which is not computed")
    header = read_header(files[weights], label=weights)
    wanted = {"linear.weight": (outputs, inputs), **({"linear.bias": (outputs,)} if biased else {})}
    found = {tensor.name: tensor for tensor in header.tensors}
    if {tensor.name: tensor.shape for tensor in header.tensors} != wanted:
        said = ", ".join(f"{shown(one.name)} {list(one.shape)}" for one in header.tensors[:4]) or "nothing"
        expected = ", ".join(f"{one} {list(shape)}" for one, shape in wanted.items())
        raise MalformedFile(f"{weights} has {said}; expected {expected}")
    odd = next((one for one in header.tensors if one.dtype not in _FLOATS), None)
    if odd is not None:
        raise NotComputed(f"{weights}: {odd.name} is {odd.dtype}; {', '.join(_FLOATS)} can be computed")
    return DenseFile(
        folder,
        inputs,
        outputs,
        _activation(config, name),
        found["linear.weight"],
        found.get("linear.bias"),
        header,
    )


def _size(config: Mapping[str, Any], key: str, name: str) -> int:
    size = config.get(key)
    if type(size) is not int or not 0 < size <= _MOST:
        raise MalformedFile(f"{name}: {key} is {quoted(size)}, expected a number of elements")
    return size


def _activation(config: Mapping[str, Any], name: str) -> "Activation":
    """Tanh where none is named, as the class has it."""
    named = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if not isinstance(named, str) or named not in _ACTIVATIONS:
        known = ", ".join(one.rpartition(".")[2] for one in _ACTIVATIONS)
        raise NotComputed(f"{name}: activation_function is {quoted(named)}; torch's {known} can be computed")
    return _ACTIVATIONS[named]


def _array(file: Any, tensor: TensorInfo) -> "np.ndarray":
    import numpy as np

    file.seek(tensor.start)
    data = file.read(tensor.nbytes)
    if len(data) != tensor.nbytes:
        raise SourceError(f"{Path(tensor.path).name} became shorter while it was read")
    if tensor.dtype == "BF16":
        wide = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return wide.view(np.float32).reshape(tensor.shape)
    kind = "<f4" if tensor.dtype == "F32" else "<f2"
    return np.frombuffer(data, kind).astype(np.float32).reshape(tensor.shape)
