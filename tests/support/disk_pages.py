"""Made-up pages of every kind of layer memory, and a folder that they are kept in."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import mlx.core as mx

from runtime.cache.build import build_memory
from runtime.cache.disk_pages import DiskPages, Stored
from runtime.cache.layout import Encoder, Full, LayerSpec, Pooled, Recurrent, Rotating, State
from runtime.cache.page_folder import PrefixFolder, list_pages
from runtime.cache.page_tensors import typed
from runtime.cache.pages import page_arrays
from runtime.step import Step

LAYOUT: tuple[LayerSpec, ...] = (
    Full(2, 64),
    Rotating(2, 64, window=6, value_dim=0),
    Recurrent({"conv": State((3, 4)), "state": State((2, 2), "float32")}),
    Encoder(2, 8),
    Pooled(32, 3),
)


def opened(
    folder: Path, layout: Sequence[LayerSpec] = LAYOUT, model: str = "sha256:aa", **more: object
) -> DiskPages:
    limit = int(str(more.pop("limit", 1 << 30)))
    kept = PrefixFolder(folder, model, limit, numbers=str(more.pop("numbers", "")))
    settings = {"dtype": mx.float32, "kept_format": None, **more}
    return DiskPages(kept, layout, **settings)


def pages(*stops: int, dtype: mx.Dtype = mx.float32, kept_format: str | None = None) -> list[Stored]:
    """What layers of LAYOUT hold of made-up sequences, cut at `stops`."""
    memory = build_memory(LAYOUT, dtype=dtype, kept_format=kept_format)
    mx.random.seed(7)
    out, start = [], 0
    for stop in stops:
        step = Step((start,), (stop - start,))
        full, rotating, recurrent, encoder, pooled = memory
        full.append(step, *(mx.random.normal((1, 2, step.width, 64), dtype=dtype) for _ in range(2)))
        rotating.append(step, mx.random.normal((1, 2, step.width, 64), dtype=dtype), None)
        recurrent.scan(
            step,
            lambda states, counts: (None, {n: mx.random.normal(s.shape, s.dtype) for n, s in states.items()}),
        )
        ended = stop // 3 - start // 3
        pooled.pool(step, mx.random.normal((1, 1, ended, 32), dtype=dtype))
        if start == 0:
            encoder.append(step, *(mx.random.normal((1, 2, 3, 8), dtype=dtype) for _ in range(2)))
        memory.commit(step, step.counts)
        page = memory.snapshot(0, start)
        mx.eval(page_arrays(page))
        out.append(Stored(start, stop, page))
        start = stop
    return out


def saved(folder: Path, keys: Sequence[int], stored: Sequence[Stored], **more: object) -> DiskPages:
    disk = opened(folder, **more)
    disk.save(keys, stored)
    disk.close()
    return opened(folder, **more)


def found(disk: DiskPages, keys: Sequence[int], above: int = 0, limit_bytes: int = 1 << 30) -> list[Stored]:
    told = threading.Event()
    reading = disk.find(keys, above=above, limit_bytes=limit_bytes, when_over=told.set)
    if reading is None:
        return []
    disk.begin(reading)
    assert told.wait(60)
    return [replace(stored, page=typed(stored.page)) for stored in reading.pages]


def same(a: Stored, b: Stored) -> bool:
    if (a.start, a.stop) != (b.start, b.stop):
        return False
    return all(
        type(x) is type(y)
        and (
            x is None
            or (x.start, x.stop, [z.dtype for z in x.arrays])
            == (y.start, y.stop, [z.dtype for z in y.arrays])
        )
        and (x is None or all(mx.array_equal(p, q).item() for p, q in zip(x.arrays, y.arrays, strict=True)))
        for x, y in zip(a.page, b.page, strict=True)
    )


KEYS = tuple(range(100, 140))


def one_file(folder: Path) -> Path:
    saved(folder, KEYS[:10], pages(10)).close()
    (file,) = list_pages(folder)
    return file.path
