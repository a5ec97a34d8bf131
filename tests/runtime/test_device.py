"""What the device report says of the machine the tests run on."""

import json
import os
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
import pytest

from runtime.cpu import native
from runtime.device import KEPT_IN, SPARE_BYTES, describe, device, give_back, keep_compiled, spare_little
from runtime.nn.operations import ops


def test_kind_follows_mlx() -> None:
    assert (device().kind == "cpu") == (mx.default_device().type == mx.DeviceType.cpu)


def test_available_memory_is_part_of_the_whole() -> None:
    found = device()
    assert 0 < found.available_bytes <= found.total_bytes


def test_a_processor_wants_float32_and_plain_weights_unless_kernels_multiply_them() -> None:
    found = device()
    if found.kind != "cpu":
        pytest.skip("not a processor")
    kernels = native.kernels is not None
    assert (found.fast_dtype, found.fast_quantized, found.as_stored) == ("float32", kernels, kernels)
    with ops.using("blas"):
        found = device()
        assert (found.fast_dtype, found.fast_quantized, found.as_stored) == ("float32", False, False)


def test_mlx_keeps_little_for_reuse() -> None:
    """Twice, as each engine says it; and no more than somebody else has asked for."""
    if device().kind != "cpu":
        pytest.skip("a GPU's buffers are dear")
    before = mx.set_cache_limit(1 << 25)
    try:
        spare_little()
        spare_little()
        assert mx.set_cache_limit(1 << 20) == SPARE_BYTES
        spare_little()
        assert mx.set_cache_limit(0) == 1 << 20
    finally:
        mx.set_cache_limit(before)


def test_memory_mlx_holds_for_reuse_stays_available(monkeypatch: pytest.MonkeyPatch) -> None:
    if device().kind != "cpu":
        pytest.skip("a GPU has memory of its own")
    monkeypatch.setattr("runtime.host.memory", lambda: (8 << 30, 1 << 30))
    monkeypatch.setattr("mlx.core.get_cache_memory", lambda: 5)
    assert device().available_bytes == (1 << 30) + 5


def test_the_description_is_plain_data() -> None:
    found = json.loads(json.dumps(describe()))
    assert found["mlx"] == version("mlx")
    assert set(found) == {"mlx", "device"}


@pytest.mark.parametrize(("on_cuda", "said"), [(True, None), (True, "/elsewhere"), (False, None)])
def test_what_cuda_compiles_is_kept_unless_somebody_says_where(
    on_cuda: bool, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mx.cuda, "is_available", lambda: on_cuda)
    monkeypatch.setattr(mx, "device_info", lambda: {"architecture": "sm_90"})
    monkeypatch.delenv(KEPT_IN, raising=False)
    if said is not None:
        monkeypatch.setenv(KEPT_IN, said)
    keep_compiled(tmp_path)
    kept = os.environ.pop(KEPT_IN, None)
    assert kept == (said or (str(tmp_path / f"mlx-{version('mlx')}-sm_90") if on_cuda else None))


@pytest.mark.parametrize(("kind", "wired"), [("metal", [7]), ("cuda", []), ("cpu", [])])
def test_what_is_held_after_loading_stays_in_the_memory_of_metal(
    kind: str, wired: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr("runtime.device._kind", lambda: kind)
    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": 9})
    monkeypatch.setattr(mx, "get_active_memory", lambda: 7)
    monkeypatch.setattr(mx, "set_wired_limit", asked.append)
    give_back()
    assert asked == wired
    monkeypatch.setattr(mx, "get_active_memory", lambda: 70)
    give_back()
    assert asked == [*wired, *[9 for _ in wired]]
