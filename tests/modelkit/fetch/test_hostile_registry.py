"""A server that does everything that it must not: one clear error each, soon, and nothing of it is kept."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from modelkit.errors import FetchError, ModelkitError
from modelkit.fetch.access import Access
from modelkit.fetch.hub.library import CONNECT_S, READ_S
from modelkit.fetch.hub.transfer import ATTEMPTS
from modelkit.fetch.registry import sockets
from modelkit.fetch.registry.manifests import referrers
from modelkit.fetch.registry.outline import pull_outline
from modelkit.fetch.registry.push import push
from modelkit.fetch.registry.source import open_registry
from modelkit.fetch.registry.wire import Limits
from modelkit.store import Digest, Name, Store
from tests.modelkit.fetch.conftest import QUICK, SHORT, at, pull
from tests.modelkit.store.packages import TREE, blobs_on_disk, put
from tests.support.fake_registry import MANIFEST_TYPE, Auth, Call, FakeRegistry, digest_of, dripping

NAME = Name.parse("back")
PACK = "application/vnd.cncf.model."
Act = Callable[[Call], bool | None]


def refused(registry: FakeRegistry, store: Store, limits: Limits = QUICK) -> ModelkitError:
    """The error that a pull ends in, which must have left nothing."""
    with pytest.raises(ModelkitError) as caught:
        pull(at(registry), NAME, store, Access(), limits=limits)
    assert len(str(caught.value)) < 1500
    assert store.packages() == []
    return caught.value


def layer(data: bytes, path: str = "config.json", kind: str = "weight.config.v1.raw") -> dict[str, Any]:
    described = {"mediaType": PACK + kind, "digest": digest_of(data), "size": len(data)}
    return {**described, "annotations": {"org.cncf.model.filepath": path}}


def manifest(**changes: Any) -> dict[str, Any]:
    config = {"mediaType": PACK + "config.v1+json", "digest": digest_of(b"{}"), "size": 2}
    kind = {"mediaType": MANIFEST_TYPE, "artifactType": PACK + "manifest.v1+json"}
    return {"schemaVersion": 2, **kind, "config": config, "layers": [layer(b"{}")], **changes}


def offer(registry: FakeRegistry, value: dict[str, Any], media_type: str = MANIFEST_TYPE) -> None:
    for data in (b"{}", b"data", b"more"):
        registry.put_blob("amy/story", data)
    registry.put_manifest("amy/story", "q4", value, media_type)


# Manifests

BAD_LAYERS: dict[str, Any] = {
    "upwards": [layer(b"{}"), layer(b"data", "../../.ssh/id_rsa")],
    "absolute": [layer(b"{}"), layer(b"data", "/etc/passwd")],
    "backslash": [layer(b"{}"), layer(b"data", "a\\..\\b")],
    "nameless": [layer(b"{}"), {"mediaType": PACK + "doc.v1.raw", "digest": digest_of(b"data"), "size": 4}],
    "twice": [layer(b"{}"), layer(b"data", "a.json"), layer(b"more", "a.json")],
    "by case": [layer(b"{}"), layer(b"data", "a.json"), layer(b"more", "A.json")],
    "inside a file": [layer(b"{}"), layer(b"data", "config.json/x")],
    "two sizes": [layer(b"{}"), layer(b"data", "a"), {**layer(b"data", "b"), "size": 5}],
    "negative": [{**layer(b"{}"), "size": -1}],
    "no size": [{**layer(b"{}"), "size": 1.5}],
    "true": [{**layer(b"{}"), "size": True}],
    "petabytes": [{**layer(b"{}"), "size": 1 << 50}],
    "more than the disk": [{**layer(b"{}"), "size": 15 << 40}],
    "a digest with a path": [{**layer(b"{}"), "digest": "sha256:../../../etc/passwd"}],
    "sha512": [{**layer(b"{}"), "digest": "sha512:" + "0" * 128}],
    "no layers": [],
    "many": [layer(b"{}", f"{n}.json") for n in range(4097)],
    "no kind": [{**layer(b"{}"), "mediaType": None}],
    "another kind": [layer(b"{}"), layer(b"data", "x", "firmware.v1.raw")],
    "no model": [layer(b"data", "README.md", "doc.v1.raw")],
    "not a layer": [1],
}


@pytest.mark.parametrize("layers", BAD_LAYERS.values(), ids=BAD_LAYERS)
def test_layers_that_lie(layers: Any, store: Store, registry: FakeRegistry) -> None:
    offer(registry, manifest(layers=layers))
    refused(registry, store)
    assert registry.count("GET", "/blobs/") == 0
    assert blobs_on_disk(store) == set()


def test_a_config_without_an_end_is_not_fetched(store: Store, registry: FakeRegistry) -> None:
    """Nor for an outline, which is read as one of our own packages."""
    config = {"mediaType": PACK + "config.v1+json", "digest": digest_of(b"more"), "size": 8 << 20}
    offer(registry, manifest(config=config, layers=[layer(b"{}"), layer(b"data", "model.safetensors")]))
    refused(registry, store)
    with pytest.raises(FetchError, match="config has 8,388,608 bytes"):
        pull_outline(at(registry), NAME, store, Access(), lambda _: None, limits=SHORT)
    assert registry.count("GET", "/blobs/") == 0


@pytest.mark.parametrize("lists", [5, "x", {"a": 1}, True])
def test_lists_that_are_none(lists: Any, store: Store, registry: FakeRegistry) -> None:
    digest = str(put(store, "story"))
    push("story", at(registry), store, Access(), limits=QUICK)
    registry.referrers = {digest: lists}
    with open_registry(at(registry), insecure=False, limits=QUICK) as asked:
        assert referrers(asked, "amy/story", Digest.parse(digest)) == []


KINDS = {
    "a package of KitOps": "application/vnd.kitops.modelkit.config.v1+json",
    "a container image": "application/vnd.oci.image.config.v1+json",
    "a Helm chart": "application/vnd.cncf.helm.config.v1+json",
    "is not read": "application/vnd.example.unknown",
}


@pytest.mark.parametrize("name", KINDS)
def test_artifacts_of_other_kinds_are_named(name: str, store: Store, registry: FakeRegistry) -> None:
    config = {"mediaType": KINDS[name], "digest": digest_of(b"{}"), "size": 2}
    offer(registry, manifest(config=config, artifactType=None))
    assert name in refused(registry, store).message


def answering(status: int, body: bytes, **headers: str) -> Act:
    return lambda call: call.answer(status, body, **headers)


GOOD = json.dumps(manifest()).encode()
BAD_MANIFESTS: dict[str, Act] = {
    "five megabytes": answering(200, b" " * (5 << 20), Content_Type=MANIFEST_TYPE),
    "no json": answering(200, b"<html>", Content_Type=MANIFEST_TYPE),
    "a key twice": answering(200, b'{"schemaVersion":2,"schemaVersion":2}', Content_Type=MANIFEST_TYPE),
    "a list": answering(200, b"[]", Content_Type=MANIFEST_TYPE),
    "deep": answering(200, b"[" * 100_000, Content_Type=MANIFEST_TYPE),
    "another kind": answering(200, GOOD, Content_Type="application/vnd.oci.image.index.v1+json"),
    "a web page": answering(200, b'{"a":1}', Content_Type="text/html"),
    "another digest": answering(
        200, GOOD, Content_Type=MANIFEST_TYPE, Docker_Content_Digest="sha256:" + "0" * 64
    ),
    "gzip": answering(200, GOOD, Content_Type=MANIFEST_TYPE, Content_Encoding="gzip"),
    "a long header": answering(200, GOOD, X_Long="x" * 200_000),
    "nowhere": answering(302, b""),
    "a file": answering(302, b"", Location="file:///etc/passwd"),
    "ftp": answering(302, b"", Location="ftp://127.0.0.1/x"),
    "a user": answering(302, b"", Location="http://amy:secret@127.0.0.1/x"),
    "no address": answering(302, b"", Location="//["),
    "control characters": answering(302, b"", Location="http://127.0.0.1/\x0bx"),
    "itself": lambda call: call.answer(302, Location=call.handler.path),
    "an error with a long text": answering(418, b"\x1b[2J" + b"spam " * 100_000),
}


@pytest.mark.parametrize("act", BAD_MANIFESTS.values(), ids=BAD_MANIFESTS)
def test_answers_for_a_manifest_that_lie(act: Act, store: Store, registry: FakeRegistry) -> None:
    registry.rules.append(lambda call: act(call) if "/manifests/" in call.path else None)
    said = str(refused(registry, store))
    assert "\x1b" not in said
    assert "secret" not in said


def drip_head(call: Call) -> bool:
    dripping(call, b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 2000, 0.05)
    return True


def endless_hints(call: Call) -> bool:
    while True:
        call.handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        time.sleep(0.001)


def drip_body(call: Call) -> bool:
    call.handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n")
    dripping(call, b" " * 4000, 0.05)
    return True


def endless_body(call: Call) -> bool:
    call.handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        call.handler.wfile.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")


def no_http(call: Call) -> bool:
    call.handler.wfile.write(b"\x00\x01\x02 SSH-2.0\r\n" * 10)
    call.handler.close_connection = True
    return True


ENDLESS: dict[str, Act] = {
    "a head that drips": drip_head,
    "hints without end": endless_hints,
    "a body that drips": drip_body,
    "a body without end": endless_body,
    "no http": no_http,
}


@pytest.mark.parametrize("act", ENDLESS.values(), ids=ENDLESS)
@pytest.mark.parametrize("part", ["/manifests/", "/blobs/"])
def test_answers_without_an_end(part: str, act: Act, store: Store, registry: FakeRegistry) -> None:
    offer(registry, manifest())
    registry.rules.append(lambda call: act(call) if part in call.path else None)
    began = time.monotonic()
    assert isinstance(refused(registry, store, SHORT), FetchError)
    assert time.monotonic() - began < 60  # a drip takes minutes
    assert blobs_on_disk(store) == set()


@pytest.mark.parametrize("part", ["/v2/", "/manifests/", "/blobs/"])
def test_silence_is_borne_for_as_long_as_at_the_hub(part: str, store: Store, registry: FakeRegistry) -> None:
    """However long an answer may take once it has begun."""
    assert (Limits().connect_s, Limits().silence_s, Limits().attempts) == (CONNECT_S, READ_S, ATTEMPTS)
    offer(registry, manifest())
    registry.rules.append(lambda call: time.sleep(3) if part in call.path else None)
    said = refused(registry, store, replace(SHORT, answer_s=60)).message
    assert said.startswith(f"{registry.host} said nothing, or too little, for ")


# Blobs

DATA = b"the right bytes of a file"


def ranged(content_range: str, data: bytes) -> Act:
    return lambda call: call.answer(206, data, Content_Range=content_range)


BAD_BLOBS: dict[str, Act] = {
    "other bytes": answering(200, DATA[::-1]),
    "more bytes": answering(200, DATA + b"and more"),
    "less": answering(200, DATA[:-4]),
    "a range for the whole": ranged(f"bytes 0-{len(DATA) - 1}/{len(DATA)}", DATA),
    "cut off": lambda call: call.answer(200, DATA[:3], length=len(DATA)),
    "gzip": answering(200, DATA, Content_Encoding="gzip"),
    "gone": answering(404, b""),
    "forbidden": answering(403, b'{"errors":[{"message":"not for you"}]}'),
    "moved for ever": lambda call: call.answer(307, Location=call.handler.path + "x"),
}


@pytest.mark.parametrize("act", BAD_BLOBS.values(), ids=BAD_BLOBS)
def test_blobs_that_are_not_what_was_promised(act: Act, store: Store, registry: FakeRegistry) -> None:
    registry.put_blob("amy/story", DATA)
    offer(registry, manifest(layers=[layer(DATA)]))
    digest = digest_of(DATA)
    registry.rules.append(
        lambda call: act(call) if call.path.startswith(f"/v2/amy/story/blobs/{digest}") else None
    )
    assert isinstance(refused(registry, store, SHORT), FetchError)
    assert Digest.of(DATA).hex not in blobs_on_disk(store)


@pytest.mark.parametrize("said", ["bytes 0-24/25", "bytes 5-24/99", "bytes 4-24/25", "items 5-24/25", ""])
def test_a_range_that_was_not_asked_for(said: str, store: Store, registry: FakeRegistry) -> None:
    registry.put_blob("amy/story", DATA)
    offer(registry, manifest(layers=[layer(DATA)]))

    def act(call: Call) -> bool | None:
        if digest_of(DATA) not in call.path:
            return None
        if call.header("range") is None:
            call.handler.close_connection = True
            return call.answer(200, DATA[:5], length=len(DATA))
        return call.answer(206, DATA[5:], Content_Range=said)

    registry.rules.append(act)
    assert "serves no parts" in refused(registry, store).message


# Where a server sends us


def test_a_password_does_not_go_along_to_another_host(store: Store, registry: FakeRegistry) -> None:
    put(store, "story", TREE)
    push("story", at(registry), store, Access(), limits=QUICK)
    store.remove("story")
    registry.auth = Auth("basic")
    with FakeRegistry() as other:
        other.blobs, other.places = registry.blobs, registry.places
        registry.rules.append(
            lambda call: (
                call.answer(307, Location=f"http://{other.host}{call.path}")
                if "/blobs/" in call.path
                else None
            )
        )
        logged_in(registry, store)
        assert pull(at(registry), NAME, store, Access(), limits=QUICK).notes == ()
        assert other.log
        assert not any("Authorization" in headers for _, _, headers in other.log)


def logged_in(registry: FakeRegistry, store: Store) -> None:
    from modelkit.fetch.registry.credentials import Credentials, keep
    from modelkit.settings.places import credential_files

    keep(credential_files()[0], registry.host, Credentials("amy", "s3cret"))


@pytest.mark.parametrize(
    "target", ["169.254.169.254", "10.0.0.1", "[::1]:9", "[::ffff:127.0.0.1]:9", "0.0.0.0", "localhost:9"]
)
def test_a_public_registry_leads_nobody_into_a_private_network(
    target: str, store: Store, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets.Gate, "_is_private", lambda self, port: False)
    offer(registry, manifest())
    registry.rules.append(
        lambda call: call.answer(307, Location=f"http://{target}/x") if "/blobs/" in call.path else None
    )
    assert "private network" in refused(registry, store).message


def test_a_name_is_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"registry.example": ["93.184.216.34"], "cdn.example": ["93.184.216.35"]}
    monkeypatch.setattr(
        sockets.socket,
        "getaddrinfo",
        lambda host, port, **_: [(0, 0, 0, "", (one, port)) for one in answers[host]],
    )
    gate = sockets.Gate("registry.example")
    assert gate.addresses("cdn.example", 443) == ["93.184.216.35"]
    answers["cdn.example"] = ["127.0.0.1"]
    assert gate.addresses("cdn.example", 443) == ["93.184.216.35"]
    answers["inner.example"] = ["93.184.216.36", "192.168.1.1"]
    with pytest.raises(FetchError, match="private network"):
        gate.addresses("inner.example", 443)


def test_a_name_that_nobody_knows_is_told_with_what_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(host: str, port: int, **_: object) -> NoReturn:
        raise OSError("Temporary failure in name resolution")

    monkeypatch.setattr(sockets.socket, "getaddrinfo", unknown)
    with pytest.raises(FetchError, match="no machine named") as caught:
        sockets.Gate("registry.example").addresses("registry.example", 443)
    assert "is there a network, and does it need a proxy?" in (caught.value.hint or "")


def test_an_upload_leads_nowhere_else(store: Store, registry: FakeRegistry) -> None:
    put(store, "story", TREE)
    for said in ({"Location": "file:///x"}, {}, {"Location": "/x", "OCI_Chunk_Min_Length": "9" * 14}):
        registry.rules[:] = [
            lambda call, said=said: call.answer(202, **said) if call.method == "POST" else None,
        ]
        with pytest.raises(FetchError, match=r"refused|does not say where"):
            push("story", at(registry), store, Access(), limits=QUICK)
    assert registry.count("PUT", "manifests") == 0


def test_where_both_ways_fail_both_are_told(store: Store, registry: FakeRegistry) -> None:
    def nonsense(call: Call) -> bool:
        call.handler.close_connection = True
        call.handler.wfile.write(b"SSH-2.0\r\n\r\n")
        return True

    registry.rules.append(nonsense)
    message = refused(registry, store).message
    assert message.startswith(f"by http: {registry.host} broke off, or spoke no proper HTTP: ")
    assert f"; by https: cannot reach {registry.host}: " in message
