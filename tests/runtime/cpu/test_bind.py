"""Binding happens in fresh processes: it is for the life of one."""

import importlib.util
import platform
import subprocess
import sys
import textwrap

import mlx.core as mx
import pytest

on_cpu = sys.platform == "linux" and mx.default_device().type == mx.DeviceType.cpu
carried = importlib.util.find_spec("scipy_openblas32") is not None
bindable = pytest.mark.skipif(not (on_cpu and carried), reason="needs Linux, MLX on CPU and scipy-openblas32")


def fresh(code: str) -> str:
    """What `code` prints in a process of its own."""
    start = "import mlx.core as mx\nfrom runtime.cpu import bind\nfrom runtime.cpu.bind import *\n"
    argv = [sys.executable, "-W", "error", "-c", start + textwrap.dedent(code)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@bindable
def test_binds_and_says_so() -> None:
    out = fresh("r = bind_blas(); print(r.bound, r.name.split()[0], r.threads > 0, r.reason)")
    assert out == "True OpenBLAS True None"


@bindable
def test_mlx_then_calls_the_bound_library() -> None:
    code = """
    bind_blas()
    slot = bind.find_slots("libmlx.so", ["cblas_dgemm"])["cblas_dgemm"][0]
    print(bind.library_of(slot.read()))
    """
    assert "scipy_openblas" in fresh(code)


@bindable
def test_products_agree_with_the_stock_ones() -> None:
    code = """
    def products():
        mx.random.seed(7)
        a, b = mx.random.normal((70, 129)), mx.random.normal((129, 65))
        rows = mx.broadcast_to(a, (3, 70, 129))
        found = [a @ b, a[:1] @ b, b.T @ a.T, a[:1] @ mx.contiguous(b.T).T, rows @ b]
        mx.eval(found)
        return found
    stock = products()
    assert bind_blas().bound
    print(all(mx.allclose(x, y, rtol=1e-4, atol=1e-4).item() for x, y in zip(stock, products())))
    """
    assert fresh(code) == "True"


@bindable
def test_is_idempotent_and_safe_from_several_threads() -> None:
    code = """
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(8) as pool:
        reports = set(pool.map(lambda _: bind_blas(), range(16)))
    print(len(reports), bind_blas() in reports, reports.pop().bound)
    """
    assert fresh(code) == "1 True True"


def test_switched_off_binds_nothing_and_can_be_bound_later() -> None:
    code = """
    r = bind_blas(enabled=False)
    print(r.bound, r.reason, bind_blas().bound)
    """
    assert fresh(code).startswith("False switched off")


@bindable
def test_a_missing_package_is_a_report() -> None:
    code = """
    bind.openblas_path = lambda: None
    print(bind_blas().reason)
    """
    assert "scipy-openblas32 is not installed" in fresh(code)


@bindable
def test_wrong_products_put_the_old_addresses_back() -> None:
    code = """
    slots = bind.find_slots("libmlx.so", bind.ROUTINES)
    good = bind._products()
    before = {name: [s.read() for s in cells] for name, cells in slots.items()}
    library = bind.ctypes.CDLL(str(bind.openblas_path()))
    way = bind._install(library, slots, [x + 1 for x in good])
    after = {name: [s.read() for s in cells] for name, cells in slots.items()}
    print(way, before == after, bind._equal(good, bind._products()))
    """
    assert fresh(code) == "None True True"


@bindable
def test_without_executable_memory_plain_sgemm_is_bound() -> None:
    code = """
    bind.switch = lambda *_: None
    r = bind_blas()
    print(r.bound, r.gemv)
    """
    assert fresh(code) == "True False"


@bindable
def test_threads_are_settable() -> None:
    out = fresh("bind_blas(); print(set_threads(1).threads, set_threads(2).threads, bind_blas().threads)")
    assert out == "1 2 2"


@bindable
def test_respects_the_librarys_own_thread_limit() -> None:
    code = """
    import ctypes; ctypes.CDLL(None).setenv(b"OPENBLAS_NUM_THREADS", b"1", 1)
    print(bind_blas().threads)
    """
    assert fresh(code) == "1"


@bindable
@pytest.mark.skipif(platform.machine() != "x86_64", reason="ticks are of another length")
def test_threads_sleep_soon_after_a_product() -> None:
    """By the library's own default they spin for 25 ms more."""
    code = """
    import os, time
    bind_blas()
    set_threads(2)
    def spent():
        mx.eval(mx.ones((600, 600)) @ mx.ones((600, 600)))
        began = time.process_time()
        time.sleep(0.1)
        return time.process_time() - began
    print(min(spent() for _ in range(5)) < 0.008, "OPENBLAS_THREAD_TIMEOUT" in os.environ)
    """
    assert fresh(code) == "True False"


def test_no_thread_count_below_one() -> None:
    code = """
    try: set_threads(0)
    except ValueError as error: print(error)
    """
    assert "at least one thread" in fresh(code)


@bindable
def test_no_library_is_asked_for_more_addresses_than_there_are() -> None:
    """It ends the process then, with words of its own, or MLX waits for ever for a thread."""
    code = """
    import resource
    from runtime.errors import ProcessLimit
    from runtime.host import address_room
    limit = 2**20 * 400
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    try:
        bind_blas()
    except ProcessLimit as fault:
        print(f"leaves this process {address_room():,} bytes" in str(fault), report().bound)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    print(bind_blas().bound)
    """
    assert fresh(code) == "True False\nTrue"


@bindable
def test_no_library_is_asked_for_more_threads_than_there_may_be() -> None:
    """OpenBLAS interrupts the process then, and waits for ever in the first product that it shares."""
    code = """
    from runtime.errors import ProcessLimit
    bind.as_allowed, bind.task_limit, bind.startable = lambda _: 4, lambda: 100, lambda wanted: wanted - 1
    try:
        bind_blas()
    except ProcessLimit as fault:
        print(fault, report().bound)
    bind.startable = lambda wanted: wanted
    print(bind_blas().bound)
    """
    said = "to compute takes 12 more threads, and the system gives this process 11; raise the limit"
    refused, bound = fresh(code).splitlines()
    assert refused.startswith(said)
    assert (refused.split()[-1], bound) == ("False", "True")
