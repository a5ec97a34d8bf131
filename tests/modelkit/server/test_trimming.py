"""Memory that large requests leave behind is given back, once, when they are over."""

import asyncio
import io
from pathlib import Path

import httpx
import pytest

from modelkit.errors import ModelNotFound
from modelkit.model import Model
from modelkit.server.log import Log
from modelkit.server.models.pool import Pool
from modelkit.server.serving import Serving
from modelkit.server.trimming import LARGE_BYTES, Trimming
from modelkit.settings import Settings
from runtime import host
from tests.support.live_server import running
from tests.support.pool import until
from tests.support.served import wait_until


@pytest.fixture
def trims(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One for each time that memory was given back."""
    made = list[bool]()
    monkeypatch.setattr(host, "trim", lambda: made.append(True))
    return made


def test_it_is_done_once_when_nothing_large_has_ended_for_a_while(trims: list[bool]) -> None:
    async def several() -> None:
        trimming = Trimming(quiet_s=0.02)
        for _ in range(3):
            trimming.ended(LARGE_BYTES)
        assert not trims
        await until(lambda: trims)
        trimming.ended(LARGE_BYTES - 1)
        await asyncio.sleep(0.05)
        assert len(trims) == 1

    asyncio.run(several())


def test_a_servers_requests_are_told(tmp_path: Path, trims: list[bool]) -> None:
    def no_model(name: str) -> Model:
        raise ModelNotFound(name)

    settings = Settings.from_environment({"MODELKIT_HOME": str(tmp_path)})
    serving = Serving(Pool(no_model), settings, log=Log(io.StringIO()), trimming=Trimming(quiet_s=0.0))
    with running(serving) as here:
        assert httpx.post(f"{here.url}/test/echo", json={"a": "x"}).status_code == 200
        assert httpx.post(f"{here.url}/test/echo", json={"a": "x" * LARGE_BYTES}).status_code == 200
        wait_until(lambda: trims)
    assert len(trims) == 1
