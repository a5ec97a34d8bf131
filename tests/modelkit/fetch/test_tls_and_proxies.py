"""Registries and the hub over TLS with an authority of one's own, behind a proxy that asks for a password."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import modelkit
from modelkit.address import RegistryAddress
from modelkit.client.connection import Connection
from modelkit.errors import FetchError, ParameterError
from modelkit.fetch.access import Access
from modelkit.fetch.registry import wire
from modelkit.fetch.registry.client import Registry
from modelkit.fetch.registry.push import push
from modelkit.store import Name, Store
from tests.modelkit.fetch.conftest import QUICK, SHORT, pull
from tests.modelkit.store.packages import TREE, put, read
from tests.support.fake_registry import FakeRegistry, dripping
from tests.support.hub import Hub, Repository, running
from tests.support.tiny import TEMPLATE, write_model
from tests.support.tls_proxy import AUTHORITY, TlsProxy

ADDRESS = RegistryAddress("registry.test", "amy/story", "q4")
WORDS = "Basic YW15OnMzY3JldA=="  # amy:s3cret


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = write_model(tmp_path / "story", template=TEMPLATE)
    made = Hub({"Amy/Story": Repository.of(folder)}, cdn="https://cdn.test")
    with running(made):
        yield made


@pytest.fixture
def proxy(
    registry: FakeRegistry, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TlsProxy]:
    """The environment names proxy and hub, and nobody trusts either yet."""
    with TlsProxy({"registry.test": registry.port, "hub.test": hub.port, "cdn.test": hub.port}) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://amy:s3cret@127.0.0.1:{proxy.port}")
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "NO_PROXY", "no_proxy", "HF_HUB_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_ENDPOINT", "https://hub.test")
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        forget()
        yield proxy
    forget()


def forget() -> None:
    """Clients read the environment once."""
    from huggingface_hub import close_session

    wire._tls.cache_clear()
    close_session()


def trust(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(AUTHORITY))
    forget()


def test_a_package_goes_to_a_registry_and_comes_back(
    store: Store, registry: FakeRegistry, proxy: TlsProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust(monkeypatch)
    registry.relative = True  # it does not know its own name
    digest = put(store, "story", format="safetensors")
    assert push("story", ADDRESS, store, Access(), limits=QUICK).digest == digest
    other = Store(tmp_path / "other")
    assert pull(ADDRESS, Name.parse("back"), other, Access(), limits=QUICK).digest == digest
    assert read(other, "back") == TREE
    assert {*proxy.asked} == {("CONNECT registry.test:443", WORDS)}
    assert not any("proxy-authorization" in headers for _, _, headers in registry.log)


def test_a_drip_through_a_proxy_is_not_waited_for(
    store: Store, registry: FakeRegistry, proxy: TlsProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust(monkeypatch)
    put(store, "story")
    registry.rules.append(lambda call: dripping(call, b"HTTP/1.1 200 OK\r\nX: " + b"a" * 4000, 0.05))
    began = time.monotonic()
    with pytest.raises(FetchError, match="said nothing, or too little"):
        push("story", ADDRESS, store, Access(), limits=replace(SHORT, connect_s=5))
    assert time.monotonic() - began < 60


def test_who_is_waited_for_over_tls_and_a_proxy_can_be_given_up(
    registry: FakeRegistry, proxy: TlsProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust(monkeypatch)
    asked, over = threading.Event(), threading.Event()
    registry.rules.append(lambda _: asked.set() or over.wait(100))
    with ThreadPoolExecutor(1) as pool, Registry("registry.test", limits=QUICK) as speaking:
        waiting = pool.submit(speaking.ping)
        assert asked.wait(60)
        speaking.abort()
        assert isinstance(waiting.exception(60), FetchError)
        over.set()


def test_a_registry_that_nobody_vouches_for_is_refused(store: Store, proxy: TlsProxy) -> None:
    put(store, "story", format="safetensors")
    with pytest.raises(FetchError, match=r"cannot show that it is registry\.test") as refused:
        push("story", ADDRESS, store, Access(), limits=QUICK)
    assert "SSL_CERT_FILE" in str(refused.value.hint)


def test_a_model_of_a_mirror_is_fetched(
    hub: Hub, proxy: TlsProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust(monkeypatch)
    pulled = modelkit.pull("hf.co/Amy/Story", home=tmp_path / "home")
    assert str(pulled.name) == "amy/story"
    assert {*proxy.asked} == {("CONNECT hub.test:443", WORDS), ("CONNECT cdn.test:443", WORDS)}
    tokens = {one.path.startswith("/cdn/"): "authorization" in one.headers for one in hub.requests}
    assert tokens == {False: True, True: False}


def test_a_mirror_that_nobody_vouches_for_is_refused(hub: Hub, proxy: TlsProxy, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="cannot show that it is") as refused:
        modelkit.pull("hf.co/Amy/Story", home=tmp_path / "home")
    assert "SSL_CERT_FILE" in str(refused.value.hint)
    assert not hub.requests


def test_no_proxy_says_who_is_asked_directly(
    store: Store, proxy: TlsProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no such machine outside of the proxy."""
    trust(monkeypatch)
    monkeypatch.setenv("NO_PROXY", "registry.test")
    put(store, "story", format="safetensors")
    with pytest.raises(FetchError, match=r"registry\.test"):
        push("story", ADDRESS, store, Access(), limits=QUICK)
    assert proxy.asked == []


@pytest.mark.parametrize(
    "given", ["socks5://amy:s3cret@127.0.0.1:9", "foo://amy:s3cret@x", "http://[amy:s3cret"]
)
def test_a_proxy_that_cannot_be_used_is_refused_without_its_password(
    store: Store, proxy: TlsProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    trust(monkeypatch)
    monkeypatch.setenv("HTTPS_PROXY", given)
    put(store, "story", format="safetensors")
    with pytest.raises(
        FetchError, match=r"proxy that the environment names .* not an http:// or https://"
    ) as told:
        push("story", ADDRESS, store, Access(), limits=QUICK)
    with pytest.raises(
        FetchError, match=r"proxy that the environment names .* not an http:// or https://"
    ) as said:
        modelkit.pull("hf.co/Amy/Story", home=tmp_path / "home")
    assert not any("s3cret" in f"{error.value}{error.value.hint}" for error in (told, said))
    assert proxy.asked == []


@pytest.mark.parametrize("file", ["nowhere", "words"])
def test_what_holds_no_certificates_is_named(
    store: Store, proxy: TlsProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    (tmp_path / "words").write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / file))
    put(store, "story", format="safetensors")
    for asking in (
        lambda: push("story", ADDRESS, store, Access(), limits=QUICK),
        lambda: modelkit.pull("hf.co/Amy/Story", home=tmp_path / "home"),
        lambda: Connection("https://studio:1"),
    ):
        with pytest.raises(ParameterError, match=f"SSL_CERT_FILE is .*{file}.* cannot be used"):
            asking()


def test_a_proxy_of_no_possible_name_is_not_reached(
    store: Store, proxy: TlsProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://a..b:1")
    put(store, "story", format="safetensors")
    with pytest.raises(FetchError, match=r"cannot reach registry\.test"):
        push("story", ADDRESS, store, Access(), limits=QUICK)
