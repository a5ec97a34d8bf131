"""Shared fixtures, and with which matrix products tests run.

Reference data that is not ours to ship lives beside the checkout, or where MODELKIT_TEST_DATA says.

Products: those of the bound BLAS, as users have them; `--products plain`: MLX's own, as where the extra `cpu`
is missing. Binding is for the life of a process, so it is done before the first test, and no test sees the
number of threads that another set. One thread is the default, as workers stand side by side. The environment
acts as always: OPENBLAS_NUM_THREADS, and OPENBLAS_CORETYPE for the kernels of another processor. These are
meant for the products that are tested: NumPy's, which they are compared with, keep this processor's (some
releases of it crash with others').
"""

import gc
import importlib
import os
import random
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.support.ranks import Standing

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read by every OpenBLAS when it is loaded, NumPy's first
_KERNELS = os.environ.pop("OPENBLAS_CORETYPE", None)
importlib.import_module("numpy")
if _KERNELS is not None:
    os.environ["OPENBLAS_CORETYPE"] = _KERNELS
# The store waits for the disk 16 times for a package, and tests make thousands. Nobody waits where there is
# memory to lay files into, which not every container has. PYTEST_DEBUG_TEMPROOT names another place.
_MEMORY, _NEEDED_BYTES = Path("/dev/shm"), 4 << 30
if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _NEEDED_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
# Tests start hundreds of commands; where no bytecode may be kept, each would compile every module anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("modelkit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("modelkit")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: some tests wait for other processes, or for a time."""
    return len(os.sched_getaffinity(0) if sys.platform == "linux" else range(os.cpu_count() or 1)) + 1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--products", choices=("bound", "plain"), default="bound", help="whose matrix products")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--products") == "plain":
        sys.modules["scipy_openblas32"] = None  # pyright: ignore[reportArgumentType]  # as if not installed
    from runtime.cpu import bind_blas

    bind_blas()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Of a test that passes, a worker tells that it began, was set up, passed, was torn down and has ended,
    which takes longer than most tests. That it passed is all that anybody asks, but for who counts times.
    """
    options = session.config.option
    if options.durations is None and options.xmlpath is None:
        for plugin in session.config.pluginmanager.get_plugins():
            if type(plugin).__name__ == "WorkerInteractor":  # of pytest-xdist
                plugin.sendevent = _telling_less(plugin.sendevent)


def _telling_less(send: Callable[..., None]) -> Callable[..., None]:
    def sendevent(name: str, **what: Any) -> None:
        passed = name == "testreport" and what["data"]["outcome"] == "passed"
        if name not in ("logstart", "logfinish") and not (passed and what["data"]["when"] != "call"):
            send(name, **what)

    return sendevent


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Thirty thousand tests grow in number and none goes: nobody looks for garbage among them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is slow may take an hour, whatever command runs it: on a busy machine it takes long indeed."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A request without a seed gets one by chance; here the same ones whenever this test runs, so that it
    fails again where it failed.
    """
    secrets.randbits = random.Random(item.nodeid).getrandbits


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    yield
    if nextitem is None or nextitem.path != item.path:
        freeze()


def freeze() -> None:
    """A model that is closed, or fails to load, collects garbage, and neither ten thousand tests nor what the
    libraries and reports of earlier files have left in memory is any: looking through that took seconds.
    """
    gc.collect()
    gc.freeze()


def pytest_report_header() -> str:
    from runtime.cpu import report

    products = report()
    return f"products: {products.config or products.name}, {products.threads or 'their own'} threads"


@pytest.fixture(autouse=True)
def threads_of_operations() -> Iterator[None]:
    """Whoever sets a number of threads sets it for the process."""
    from runtime.cpu import set_threads, thread_count

    before = thread_count()
    yield
    if before and thread_count() != before:
        set_threads(before)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of third-party reference data; tests that need it skip where it is absent."""
    given = os.environ.get("MODELKIT_TEST_DATA")
    folder = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no reference data: {folder} is absent (set MODELKIT_TEST_DATA)")
    return folder


@pytest.fixture(scope="session")
def crews(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Callable[[int], Standing]]":
    """Gives ranks, so many as are asked for: the same ones each time, until one of them fails."""
    from tests.support.ranks import Standing

    standing: dict[int, Standing] = {}

    def of(size: int) -> Standing:
        if size not in standing or standing[size].ended:
            standing[size] = Standing(tmp_path_factory.mktemp("ranks"), size)
        return standing[size]

    yield of
    for one in standing.values():
        one.close()
