"""modelkit: package, quantize and run local language models on MLX, from a Modelfile.

    import modelkit

    modelkit.create("Modelfile", name="island", quantize_draft="q4")
    with modelkit.load("island") as model:
        print(model.generate("Once upon a time", temperature=0).text)

Importing this package costs milliseconds: MLX and the tokenizer load with the first model.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from modelkit import errors

if TYPE_CHECKING:
    from modelkit.model import Model
    from modelkit.modelfile import Modelfile
    from modelkit.verbs import create, load

__version__ = "0.1.0"
__all__ = ["Model", "Modelfile", "__version__", "create", "errors", "load"]

_HOMES = {
    "Model": "modelkit.model",
    "create": "modelkit.verbs",
    "load": "modelkit.verbs",
    "Modelfile": "modelkit.modelfile",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'modelkit' has no attribute {name!r}")
    _check_runtime()
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _check_runtime() -> None:
    """Another distribution's `runtime` on the path would shadow ours and fail in strange ways later."""
    found = import_module("runtime")
    if getattr(found, "PART_OF", None) != "modelkit-mlx":
        raise errors.ModelkitError(
            f"another package named 'runtime' ({found.__file__}) hides modelkit's own",
            hint="Uninstall it, or install modelkit-mlx into an environment of its own.",
        )
