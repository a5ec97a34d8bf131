"""What the device report says of the machine the tests run on."""

import json
from importlib.metadata import version

import mlx.core as mx
import pytest

from runtime.device import describe, device


def test_kind_follows_mlx() -> None:
    assert (device().kind == "cpu") == (mx.default_device().type == mx.DeviceType.cpu)


def test_available_memory_is_part_of_the_whole() -> None:
    found = device()
    assert 0 < found.available_bytes <= found.total_bytes


def test_a_processor_wants_float32_and_plain_weights() -> None:
    found = device()
    if found.kind != "cpu":
        pytest.skip("not a processor")
    assert (found.fast_dtype, found.fast_quantized) == ("float32", False)


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
