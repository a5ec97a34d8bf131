"""The networks that rounding moves furthest answer right with the kernels of other processors.

OpenBLAS picks its kernels by processor when it is loaded, so each of them runs in a process of its own. What
this processor's own products give is in test_parity.
"""

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

from tests.support.parity import Reference

WORST = 6
NEEDS = {"Prescott": "", "Sandybridge": "avx", "Haswell": "avx2", "SkylakeX": "avx512vl"}
ASK = """
import sys, tempfile
from pathlib import Path
from runtime.cpu import bind_blas
from tests.support.parity import Reference, bar, cut_logits, full_logits
print(bind_blas(enabled=sys.argv[1] != "plain").config)
for name in sys.argv[2:]:
    reference = Reference(name)
    ids = reference.answers["ids"]
    with tempfile.TemporaryDirectory() as folder:
        model = reference.load(Path(folder))
        found = [reference.error(full_logits(model, ids))]
        found += [reference.error(cut_logits(model, ids, cuts)) for cuts in ([5], [29, 1])]
    assert max(found) < bar(reference), (name, found)
"""


def runnable() -> list[str]:
    """Kernels that this processor can run, MLX's own always."""
    here = platform.machine() == "x86_64" and mx.default_device().type == mx.DeviceType.cpu
    if not here or importlib.util.find_spec("scipy_openblas32") is None:
        return ["plain"]
    flags = Path("/proc/cpuinfo").read_text().split()
    return ["plain", *(core for core, flag in NEEDS.items() if not flag or flag in flags)]


@pytest.mark.parametrize("kernels", runnable())
def test_the_worst_conditioned_networks(kernels: str) -> None:
    names = sorted(Reference.names(), key=lambda name: -Reference(name).record["sensitivity"])[:WORST]
    env = {**os.environ, "OPENBLAS_CORETYPE": kernels}
    argv = [sys.executable, "-W", "error", "-c", ASK, kernels, *names]
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(argv, env=env, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if kernels not in ("plain", "Prescott"):  # whose kernels go by another name
        assert kernels in done.stdout
