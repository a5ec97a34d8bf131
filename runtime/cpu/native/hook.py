"""Hatchling's hook: the kernels are built along with the project, where there is a compiler.

Without one, and on platforms that have no use for them, the project is built as pure Python and computes by
MLX and a bound BLAS (`runtime.cpu`); `modelkit doctor` says which. MODELKIT_KERNELS=off leaves them out,
=required makes their absence an error (for wheels).

A wheel gets what is built now and nothing else. An editable installation gets them into the checkout, where
each Python has an extension of its own.
"""

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "runtime/cpu/native"


def _building() -> Any:
    spec = importlib.util.spec_from_file_location("building", Path(__file__).with_name("building.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module


class Kernels(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        building = _building()
        wanted = os.environ.get("MODELKIT_KERNELS") != "off" and building.refusal() is None
        return list(building.REQUIRES) if wanted else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        building = _building()
        self._folder = Path(tempfile.mkdtemp(prefix="modelkit-"))
        in_place = version == "editable"
        folder = building.HERE if in_place else self._folder
        made = self._build(building, folder)
        if in_place:
            return
        build_data["force_include"][str(folder / building.REPORT)] = f"{PLACE}/{building.REPORT}"
        if made is not None:
            build_data["pure_python"], build_data["infer_tag"] = False, True
            build_data["force_include"][str(made)] = f"{PLACE}/{made.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _build(self, building: Any, folder: Path) -> Path | None:
        """The extension and the report, put into `folder`."""
        try:
            if os.environ.get("MODELKIT_KERNELS") == "off":
                raise building.CannotBuild(
                    "they were left out when modelkit was installed (MODELKIT_KERNELS=off)",
                    "install modelkit again without it",
                )
            made = building.build(folder)
        except building.CannotBuild as error:
            if os.environ.get("MODELKIT_KERNELS") == "required":
                raise
            (folder / building.FILE).unlink(missing_ok=True)  # nobody knows which sources it was made of
            building.report(error, folder)
            self.app.display_warning(f"modelkit without kernels of its own: {error.reason}")
            return None
        building.report(None, folder)
        return made
