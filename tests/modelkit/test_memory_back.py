"""Closing a model gives its memory back to the system, not only to the C library."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import modelkit
from runtime import host
from runtime.cpu import native
from tests.support.tiny import write_model

SCRIPT = """
import json, os, sys
import modelkit

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

with modelkit.load(sys.argv[1]) as small:
    small.generate("Hi", raw=True, num_predict=3)
base = resident()
model = modelkit.load(sys.argv[2], home=sys.argv[3])
streams = [model.generate("Hello there", raw=True, num_predict=20, stream=True) for _ in range(2)]
answer, unread = streams[0].whole(), streams[1]
model.encode("held: the model itself, an answer, and a stream that nobody has read")
loaded = resident()
model.close()
print(json.dumps([base, loaded, resident()]))
"""


@pytest.mark.skipif(
    sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="memory is measured on Linux, glibc"
)
@pytest.mark.parametrize(
    ("quantize", "kernels"), [(None, ""), ("q4", ""), ("q4", "off")], ids=["floats", "packed", "expanded"]
)
def test_a_closed_model_leaves_little_behind(tmp_path: Path, quantize: str | None, kernels: str) -> None:
    small = write_model(tmp_path / "small")
    big = write_model(
        tmp_path / "big",
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=6,
        num_attention_heads=8,
        head_dim=64,
    )
    (tmp_path / "Modelfile").write_text(f"FROM {big}\n")
    modelkit.create(tmp_path / "Modelfile", name="big", quantize=quantize, home=tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(small), "big", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, native.VARIABLE: kernels},
    )
    base, loaded, closed = json.loads(done.stdout)
    taken = loaded - base
    assert taken > (50e6 if quantize is None or kernels else 15e6)
    assert closed - base < 0.3 * taken


def test_trimming_is_left_alone_where_there_is_nothing_to_trim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not host.trim()
