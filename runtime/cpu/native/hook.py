"""Hatchling's hook: the kernels are built along with the project, where there is a compiler.

Without one, and on platforms that have no use for them, the project is built as pure Python and computes by
MLX and a bound BLAS (`runtime.cpu`); `modelkit doctor` says which. MODELKIT_KERNELS=off leaves them out,
=required makes their absence an error (for wheels).
"""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


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
        wanted = os.environ.get("MODELKIT_KERNELS") != "off" and building.platform_refusal() is None
        try:
            building.compilers()
        except building.CannotBuild:
            wanted = False
        return list(building.REQUIRES) if wanted else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        building = _building()
        building.remove()
        try:
            if os.environ.get("MODELKIT_KERNELS") == "off":
                raise building.CannotBuild("they were left out (MODELKIT_KERNELS=off)")
            made = building.build()
        except building.CannotBuild as error:
            if os.environ.get("MODELKIT_KERNELS") == "required":
                raise
            building.report(str(error).splitlines()[0])
            self.app.display_warning(f"modelkit without kernels of its own: {error}")
        else:
            building.report(None)
            build_data["pure_python"], build_data["infer_tag"] = False, True
            build_data["force_include"][str(made)] = f"runtime/cpu/native/{made.name}"
        build_data["force_include"][str(building.REPORT)] = "runtime/cpu/native/built.json"
