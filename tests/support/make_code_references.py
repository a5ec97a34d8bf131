"""Make tests/data/codes.npz: what the tools themselves compute from random words, in float32.

    python -m tests.support.make_code_references AUTOAWQ GPTQMODEL

Run by hand, where torch and compressed-tensors (0.20.0) are installed. The two are unpacked source
distributions of autoawq (0.2.9) and gptqmodel (7.7.0), which build no wheel without a GPU: their own
functions are taken out of the files that have them.
"""

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

TARGET = Path(__file__).parents[1] / "data" / "codes.npz"
INPUTS, OUTPUTS, GROUP = 64, 32, 32
GROUPS = INPUTS // GROUP
PLUS_ONE = {
    2: 0b01010101010101010101010101010101,
    4: 0b00010001000100010001000100010001,
    8: 0b00000001000000010000000100000001,
}
"""What GPTQModel adds to the zero points of its first format (`convert_gptq_v1_to_v2_format_module`)."""
_METHODS = ("_init_wf_unsqueeze_buffers", "dequantize_weight", "_dequantize_from_codes")
_RANDOM = torch.Generator().manual_seed(5)


def words(*shape: int) -> torch.Tensor:
    found = torch.randint(-(2**31), 2**31 - 1, shape, generator=_RANDOM, dtype=torch.int64)
    return found.to(torch.int32)


def scales(*shape: int) -> torch.Tensor:
    return (torch.rand(shape, generator=_RANDOM) * 0.02 + 0.002).half()


def gptq_layer(source: Path) -> type:
    """GPTQModel's layer, as far as unpacking goes."""
    text = (source / "gptqmodel/nn_modules/qlinear/__init__.py").read_text(encoding="utf-8")
    shift = {"_torch_right_shift": torch.bitwise_right_shift, "_torch_left_shift": torch.bitwise_left_shift}
    namespace: dict[str, Any] = {"t": torch, **shift}
    for name in _METHODS:
        found = re.search(rf"^    def {name}\(.*?(?=^    (?:def|@)|^class |\Z)", text, re.S | re.M)
        assert found is not None, name
        exec("\n".join(line[4:] for line in found[0].split("\n")), namespace)

    class Layer:
        planar, enable_wf_unsqueeze = False, True
        pack_dtype_bits, dequant_dtype = 32, torch.int32

        def __init__(self) -> None:
            self._buffers: dict[str, torch.Tensor] = {}

        def _wf_device(self) -> str:
            return "cpu"

        def register_buffer(self, name: str, value: torch.Tensor, *, persistent: bool = True) -> None:
            self._buffers[name] = value
            setattr(self, name, value)

    for name in _METHODS:
        setattr(Layer, name, namespace[name])
    return Layer


def second_format(zeros: torch.Tensor, bits: int) -> torch.Tensor:
    if bits in PLUS_ONE:
        return zeros + PLUS_ONE[bits]
    stream = np.unpackbits(zeros.numpy().view(np.uint8), axis=1, bitorder="little").reshape(GROUPS, -1, bits)
    codes = (stream @ (1 << np.arange(bits)) + 1) & ((1 << bits) - 1)
    spread = (codes[..., None] >> np.arange(bits)) & 1
    packed = np.packbits(spread.astype(np.uint8).reshape(GROUPS, -1), axis=1, bitorder="little")
    return torch.from_numpy(packed.view(np.int32).copy())


def of_gptq(bits: int, layer: Any) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    tensors = {
        "qweight": words(INPUTS * bits // 32, OUTPUTS),
        "qzeros": words(GROUPS, OUTPUTS * bits // 32),
        "scales": scales(GROUPS, OUTPUTS),
        "g_idx": (torch.arange(INPUTS) // GROUP).int(),
    }
    layer.bits, layer.maxq, layer.pack_factor, layer.in_features = bits, 2**bits - 1, 32 // bits, INPUTS
    layer.qweight, layer.scales, layer.g_idx = tensors["qweight"], tensors["scales"].float(), tensors["g_idx"]
    layer.qzeros = second_format(tensors["qzeros"].clone(), bits)
    return tensors, layer.dequantize_weight().T.contiguous()


def of_awq(unpack: Callable[..., torch.Tensor]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    tensors = {
        "qweight": words(INPUTS, OUTPUTS // 8),
        "qzeros": words(GROUPS, OUTPUTS // 8),
        "scales": scales(GROUPS, OUTPUTS),
    }
    found = unpack(tensors["qweight"], tensors["qzeros"], tensors["scales"].float(), 4, GROUP)
    return tensors, found.T.contiguous().float()


def of_compressed_tensors(bits: int, *, symmetric: bool) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    how = QuantizationArgs(num_bits=bits, type="int", symmetric=symmetric, strategy="group", group_size=GROUP)
    tensors = {
        "weight_packed": words(OUTPUTS, INPUTS * bits // 32),
        "weight_scale": scales(OUTPUTS, GROUPS),
        "weight_shape": torch.tensor([OUTPUTS, INPUTS]),
    }
    if not symmetric:
        tensors["weight_zero_point"] = words(OUTPUTS * bits // 32, GROUPS)
    given = {name: one.clone() for name, one in tensors.items()}
    given["weight_scale"] = given["weight_scale"].float()
    scheme = QuantizationScheme(targets=["Linear"], weights=how)
    return tensors, PackedQuantizationCompressor.decompress(given, scheme)["weight"].float()


def main() -> None:
    autoawq, gptqmodel = map(Path, sys.argv[1:])
    place = autoawq / "awq/utils/packing_utils.py"
    spec = importlib.util.spec_from_file_location("packing_utils", place)
    assert spec is not None
    assert spec.loader is not None
    packing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(packing)
    layer = gptq_layer(gptqmodel)
    cases = {f"gptq{bits}": of_gptq(bits, layer()) for bits in (2, 3, 4, 8)}
    cases["awq4"] = of_awq(packing.dequantize_gemm)
    for bits in (2, 3, 4, 6, 8):
        for symmetric in (True, False):
            case = f"ct{bits}{'s' if symmetric else 'a'}"
            cases[case] = of_compressed_tensors(bits, symmetric=symmetric)
    found: dict[str, np.ndarray] = {}
    for case, (tensors, floats) in cases.items():
        found |= {f"{case}.{leaf}": one.numpy() for leaf, one in {**tensors, "floats": floats}.items()}
    np.savez_compressed(TARGET, **found)


if __name__ == "__main__":
    main()
