"""modelkit: package, quantize and run local language models on MLX, from a Modelfile.

    import modelkit

    modelkit.create("Modelfile", name="island", quantize_draft="q4")
    with modelkit.load("island") as model:
        print(model.generate("Once upon a time", temperature=0).text)

Importing this package costs next to nothing: MLX and the tokenizer load with the first model. Not even the
standard library's typing is imported, which takes longer than all else, and which a command that is
interrupted as it starts would be in.
"""

TYPE_CHECKING = False  # what typing has; type checkers know the name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from modelkit import errors
    from modelkit.answers.generation import Finish, Generation
    from modelkit.answers.streams import GenerationStream
    from modelkit.async_model import AsyncModel
    from modelkit.chat.message import Message, ToolCall
    from modelkit.comparing.predictions import Comparison, compare
    from modelkit.comparing.vectors import EmbeddingComparison, compare_embeddings
    from modelkit.loaded.embedding import Embeddings
    from modelkit.memory import Memory
    from modelkit.model import Model
    from modelkit.modelfile import Directive, Modelfile
    from modelkit.output.events import CallArguments, CallEnd, CallStart, Text, Thinking
    from modelkit.output.pieces import Piece
    from modelkit.pack.build import Created
    from modelkit.pack.gguf.export import ExportedGguf
    from modelkit.packages import copy, export, export_adapter, export_gguf, remove
    from modelkit.packages import list_packages as list  # noqa: A004 -- read as modelkit.list
    from modelkit.prefixes import Prefix
    from modelkit.store import BrokenPackage, Exported, Freed, Package
    from modelkit.verbs import create, load, pull, push
    from runtime.engine.request import Drafts, PromptProgress, TokenLogprob, Usage

__version__ = "0.1.0"
__all__ = [
    "AsyncModel",
    "BrokenPackage",
    "CallArguments",
    "CallEnd",
    "CallStart",
    "Comparison",
    "Created",
    "Directive",
    "Drafts",
    "EmbeddingComparison",
    "Embeddings",
    "Exported",
    "ExportedGguf",
    "Finish",
    "Freed",
    "Generation",
    "GenerationStream",
    "Memory",
    "Message",
    "Model",
    "Modelfile",
    "Package",
    "Piece",
    "Prefix",
    "PromptProgress",
    "Text",
    "Thinking",
    "TokenLogprob",
    "ToolCall",
    "Usage",
    "__version__",
    "compare",
    "compare_embeddings",
    "copy",
    "create",
    "errors",
    "export",
    "export_adapter",
    "export_gguf",
    "list",
    "load",
    "pull",
    "push",
    "remove",
]

# Name here -> where it lives, and its name there where that is another.
_HOMES = {
    "AsyncModel": "modelkit.async_model",
    "BrokenPackage": "modelkit.store",
    "CallArguments": "modelkit.output.events",
    "CallEnd": "modelkit.output.events",
    "CallStart": "modelkit.output.events",
    "Comparison": "modelkit.comparing.predictions",
    "Created": "modelkit.pack.build",
    "Directive": "modelkit.modelfile",
    "Drafts": "runtime.engine.request",
    "EmbeddingComparison": "modelkit.comparing.vectors",
    "Embeddings": "modelkit.loaded.embedding",
    "Exported": "modelkit.store",
    "ExportedGguf": "modelkit.pack.gguf.export",
    "Finish": "modelkit.answers.generation",
    "Freed": "modelkit.store",
    "Generation": "modelkit.answers.generation",
    "GenerationStream": "modelkit.answers.streams",
    "Memory": "modelkit.memory",
    "Message": "modelkit.chat.message",
    "Model": "modelkit.model",
    "Modelfile": "modelkit.modelfile",
    "Package": "modelkit.store",
    "Piece": "modelkit.output.pieces",
    "Prefix": "modelkit.prefixes",
    "PromptProgress": "runtime.engine.request",
    "Text": "modelkit.output.events",
    "Thinking": "modelkit.output.events",
    "TokenLogprob": "runtime.engine.request",
    "ToolCall": "modelkit.chat.message",
    "Usage": "runtime.engine.request",
    "compare": "modelkit.comparing.predictions",
    "compare_embeddings": "modelkit.comparing.vectors",
    "copy": "modelkit.packages",
    "create": "modelkit.verbs",
    "export": "modelkit.packages",
    "export_adapter": "modelkit.packages",
    "export_gguf": "modelkit.packages",
    "list": "modelkit.packages:list_packages",
    "load": "modelkit.verbs",
    "pull": "modelkit.verbs",
    "push": "modelkit.verbs",
    "remove": "modelkit.packages",
}


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name == "errors":
        return import_module("modelkit.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'modelkit' has no attribute {name!r}")
    from modelkit.gc_pause import uncollected

    _check_runtime()
    module, _, other = _HOMES[name].partition(":")
    with uncollected():
        return getattr(import_module(module), other or name)


def __dir__() -> "Sequence[str]":
    return sorted(__all__)


def _check_runtime() -> None:
    """Another distribution's `runtime` on the path would shadow ours and fail in strange ways later."""
    import runtime

    if getattr(runtime, "PART_OF", None) != "modelkit-mlx":
        from modelkit import errors

        raise errors.ModelkitError(
            f"another package named 'runtime' ({runtime.__file__}) hides modelkit's own",
            hint="Uninstall it, or install modelkit-mlx into an environment of its own.",
        )
