"""An adapter of a package -> a folder in the form of another program: PEFT's, or mlx-lm's.

A package has pairs by the modules of our network. They go back to the matrices that the other program has
them in. Refused by name is what a form has no word for, and for mlx-lm what its classes have otherwise.

    as_peft      to transformers' matrices (`peft_names`, `taken_back`)
    as_mlx_lm    under the names of mlx-lm's classes, row by row as they are
"""

from modelkit.errors import ModelkitError, PlanError
from modelkit.pack.adapters.exported import HINT, ExportedAdapter
from modelkit.pack.adapters.forms import AdapterForm
from modelkit.pack.adapters.place import kinds_of
from modelkit.pack.sources import open_package
from modelkit.store.package import Package
from runtime.models import describe
from runtime.quoting import quoted


def adapter_files(package: Package, name: str, form: AdapterForm = "peft") -> dict[str, bytes]:
    """The files of the adapter's folder, by name. Raises PlanError for what the form cannot say."""
    origin = open_package(package)
    adapter = origin.adapters.get(name)
    if adapter is None:
        have = ", ".join(origin.adapters) or "none"
        raise ModelkitError(f"{package.name} has no adapter {quoted(name)}; there is {have}")
    described = describe(origin.source.inventory.config)
    exported = ExportedAdapter(adapter, adapter.load(), origin, described, kinds_of(described))
    _check(exported)
    if form == "peft":
        from modelkit.pack.adapters.as_peft import peft_files

        return peft_files(exported)
    from modelkit.pack.adapters.as_mlx_lm import mlx_lm_files

    return mlx_lm_files(exported)


def _check(exported: ExportedAdapter) -> None:
    """What neither form can say."""
    pairs = exported.brought.pairs.values()
    for what, having in (
        ("a magnitude", [pair.magnitude is not None for pair in pairs]),
        ("a bias", [pair.bias is not None for pair in pairs]),
    ):
        if any(having) and not all(having):
            raise PlanError(
                f"some pairs of adapter {exported.adapter.name} have {what}, and some none", hint=HINT
            )
