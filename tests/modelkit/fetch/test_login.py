"""Who may come in: passwords and tokens, where they are kept, and where they never go."""

import base64
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from modelkit.errors import FetchError, InvalidName
from modelkit.fetch.access import Access
from modelkit.fetch.registry.challenge import read_challenges
from modelkit.fetch.registry.credentials import Credentials, find, keep
from modelkit.fetch.registry.login import host_of, login, logout
from modelkit.fetch.registry.push import push
from modelkit.fetch.registry.source import open_registry
from modelkit.fetch.registry.tokens import Authorization, Denied, belongs
from modelkit.settings.places import credential_files
from modelkit.store import Name, Store
from tests.modelkit.fetch.conftest import QUICK, at, pull
from tests.modelkit.store.packages import TREE, put, read
from tests.support.fake_registry import Auth, FakeRegistry

AMY = Credentials("amy", "s3cret")
NAME = Name.parse("back")
LARGE = {**TREE, "model.safetensors": bytes(300_000)}


def encoded(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def user(found: Credentials | None) -> str | None:
    return found.user if found else None


# Tokens


@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_a_package_goes_there_and_back_behind_a_login(
    kind: str, store: Store, registry: FakeRegistry
) -> None:
    registry.auth = Auth(kind)
    digest = put(store, "story", TREE)
    with pytest.raises(Denied) as caught:
        push("story", at(registry), store, Access(), limits=QUICK)
    assert f"modelkit login {registry.host}" in (caught.value.hint or "")
    login(registry.host, AMY, credential_files(), limits=QUICK)
    push("story", at(registry), store, Access(), limits=QUICK)
    assert pull(at(registry), NAME, store, Access(), limits=QUICK).digest == digest


def test_a_token_that_ends_in_the_middle_is_asked_for_again(
    store: Store, registry: FakeRegistry, tmp_path: Path
) -> None:
    auth = registry.auth = Auth("bearer")
    keep(credential_files()[0], registry.host, AMY)
    registry.rules.append(lambda call: auth.tokens.clear() if len(registry.log) % 10 == 0 else None)
    put(store, "story", LARGE)
    push("story", at(registry), store, Access(), limits=QUICK, chunk_bytes=32_000)
    other = Store(tmp_path / "other")
    pull(at(registry), NAME, other, Access(), limits=QUICK)
    assert read(other, "back") == LARGE
    assert len(auth.scopes) > 4


def test_a_token_is_for_what_is_to_be_done(store: Store, registry: FakeRegistry) -> None:
    put(store, "story", TREE)
    push("story", at(registry, "amy/first"), store, Access(), limits=QUICK)
    registry.auth = Auth("bearer")
    keep(credential_files()[0], registry.host, AMY)
    push("story", at(registry, "amy/second"), store, Access(), limits=QUICK)
    asked = {tuple(scopes) for scopes in registry.auth.scopes}
    assert ("repository:amy/second:pull,push", "repository:amy/first:pull") in asked


def test_a_token_in_place_of_a_password(store: Store, registry: FakeRegistry) -> None:
    registry.auth = Auth("bearer")
    write(credential_files()[0], {"auths": {registry.host: {"identitytoken": "s3cret"}}})
    put(store, "story", TREE)
    push("story", at(registry), store, Access(), limits=QUICK)


def test_an_answer_that_is_401_for_ever(store: Store, registry: FakeRegistry) -> None:
    registry.auth = Auth("bearer", uses=0, anonymous=True)
    with pytest.raises(Denied):
        pull(at(registry), NAME, store, Access(), limits=QUICK)
    assert len(registry.log) < 20


def test_a_token_that_is_good_for_too_little_is_not_asked_for_again(
    store: Store, registry: FakeRegistry
) -> None:
    auth = registry.auth = Auth("bearer", uses=0, anonymous=True, error="insufficient_scope")
    with pytest.raises(Denied) as caught:
        pull(at(registry), NAME, store, Access(), limits=QUICK)
    assert auth.scopes.count(["repository:amy/story:pull"]) == 1
    assert f"modelkit login {registry.host}" in (caught.value.hint or "")


def test_a_realm_that_gives_no_token_says_for_whom(store: Store, registry: FakeRegistry) -> None:
    registry.auth = Auth("bearer")
    said = f"{registry.host} gives no token for {registry.host}"
    with pytest.raises(Denied, match=f"{said} to somebody without a name"):
        pull(at(registry), NAME, store, Access(), limits=QUICK)
    keep(credential_files()[0], registry.host, Credentials("amy", "guessed"))
    with pytest.raises(Denied, match=f"{said} with this name and password"):
        pull(at(registry), NAME, store, Access(), limits=QUICK)


@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_a_wrong_password_is_said_to_be_one(kind: str, registry: FakeRegistry) -> None:
    registry.auth = Auth(kind)
    with pytest.raises(Denied, match="does not take this name and password"):
        login(registry.host, Credentials("amy", "guessed"), credential_files(), limits=QUICK)
    assert find(credential_files(), registry.host) is None


@pytest.mark.parametrize(
    "realm",
    ["http://elsewhere.example/token", "https://[::1/token", "file:///token", "https://a:b@elsewhere/t", ""],
)
def test_a_realm_that_is_no_place_for_a_password(realm: str, store: Store, registry: FakeRegistry) -> None:
    registry.auth = Auth("bearer", realm=realm or "no address")
    keep(credential_files()[0], registry.host, AMY)
    with pytest.raises(FetchError) as caught:
        pull(at(registry), NAME, store, Access(), limits=QUICK)
    assert "s3cret" not in str(caught.value)


def test_a_strangers_realm_is_asked_without_the_password(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On this machine every port is one host, so what is said of names is said here.
    monkeypatch.setattr(Authorization, "_check", lambda self, realm: False)
    with FakeRegistry(Auth("bearer", anonymous=True)) as other:
        registry.auth = Auth("bearer", realm=f"http://{other.host}/token")
        assert other.auth is not None
        registry.auth.tokens = other.auth.tokens
        keep(credential_files()[0], registry.host, AMY)
        with open_registry(at(registry), insecure=False, limits=QUICK) as asked:
            asked.ping()
        assert other.log
        assert not any("Authorization" in headers for _, _, headers in other.log)


def test_which_realms_belong_to_a_registry() -> None:
    same = [
        ("ghcr.io", "ghcr.io"),
        ("auth.docker.io", "registry-1.docker.io"),
        ("gitlab.com", "registry.gitlab.com"),
    ]
    same += [("authn.nvidia.com", "nvcr.io"), ("sso.example.co.uk", "registry.example.co.uk")]
    other = [
        ("evil.com", "ghcr.io"),
        ("docker.io.evil.com", "registry-1.docker.io"),
        ("evil.co.uk", "example.co.uk"),
    ]
    other += [
        ("10.0.0.2", "10.0.0.1"),
        ("1.docker.io", "10.0.0.1"),
        ("com", "example.com"),
        ("co.uk", "x.co.uk"),
    ]
    assert [pair for pair in same if not belongs(*pair)] == []
    assert [pair for pair in other if belongs(*pair)] == []


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ('Bearer realm="https://a/t",service="s",scope="x y"', [("bearer", "https://a/t", "s", "x y")]),
        (
            'Basic realm="here", Bearer realm=https://a/t',
            [("basic", "here", "", ""), ("bearer", "https://a/t", "", "")],
        ),
        (r'bearer realm="a\"b"', [("bearer", 'a"b', "", "")]),
        ("Negotiate", [("negotiate", "", "", "")]),
        ('realm="https://a"', []),
        ('Bearer realm="open', [("bearer", "", "", "")]),
        ("", []),
        (", " * 9000, []),
    ],
)
def test_challenges(header: str, found: list[tuple[str, str, str, str]]) -> None:
    read_all = [(one.scheme, one.realm, one.service, one.scope) for one in read_challenges([header])]
    assert read_all[: len(found)] == found
    assert all(not one[1] for one in read_all[len(found) :])


# Where passwords are kept


def test_the_longest_name_of_a_place_counts(tmp_path: Path) -> None:
    config = {
        "auths": {
            "example.org": encoded("all", "1"),
            "example.org/amy": encoded("amy", "2"),
            "https://example.org/amy/story/": encoded("story", "3"),
            "https://index.docker.io/v1/": encoded("hub", "4"),
            "broken.org": {"auth": "%%%"},
            "empty.org": {},
        }
    }
    write(tmp_path / "config.json", config)
    asked = [
        ("example.org", ""),
        ("example.org", "bob/x"),
        ("example.org", "amy/x"),
        ("example.org", "amy/story"),
        ("registry-1.docker.io", "library/x"),
        ("broken.org", "x"),
        ("empty.org", "x"),
        ("example.org.evil.com", "amy/x"),
    ]
    found = [user(find([tmp_path / "config.json"], *one)) for one in asked]
    assert found == ["all", "all", "amy", "story", "hub", None, None, None]


def test_files_are_asked_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    files = credential_files()
    assert [path.name for path in files] == ["auth.json", "auth.json", "config.json"]
    for number, path in reversed(list(enumerate(files))):
        write(path, {"auths": {"example.org": encoded(str(number), "x")}})
        assert user(find(credential_files(), "example.org")) == str(number)
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "own.json"))
    assert find(credential_files(), "example.org") is None


HELPER = """#!/bin/sh
read server
echo "$1 $server" >> "{log}"
case "$server" in
  known.org) echo '{{"ServerURL":"known.org","Username":"amy","Secret":"s3cret"}}' ;;
  token.org) echo '{{"Username":"<token>","Secret":"s3cret"}}' ;;
  odd.org) echo 's3cret' ;;
  none.org) echo 'credentials not found in native keychain'; exit 1 ;;
  *) echo 's3cret' >&2; exit 3 ;;
esac
"""


def test_programs_that_keep_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "docker-credential-keys"
    program.parent.mkdir()
    program.write_text(HELPER.format(log=tmp_path / "log"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    file = tmp_path / "config.json"
    write(file, {"credsStore": "keys", "auths": {"known.org": {}}})
    assert find([file], "known.org") == AMY
    assert find([file], "token.org") == Credentials(identity_token="s3cret")
    assert find([file], "none.org") is None
    for host in ("odd.org", "fails.org"):
        with pytest.raises(FetchError) as caught:
            find([file], host)
        assert "s3cret" not in f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"
    write(file, {"credHelpers": {"known.org": "keys", "other.org": "missing", "third.org": "../bin/sh"}})
    assert find([file], "known.org") == AMY
    for host in ("other.org", "third.org"):
        with pytest.raises(FetchError, match=r"is missing|is not a (name of a )?credential helper"):
            find([file], host)
    assert set((tmp_path / "log").read_text().split()) >= {"get", "known.org"}


def test_a_file_that_is_broken_is_named_and_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"auths": {"example.org": {"auth": "s3cret"')
    with pytest.raises(FetchError) as caught:
        find([tmp_path / "config.json"], "example.org")
    assert str(tmp_path / "config.json") in caught.value.message
    assert "s3cret" not in f"{caught.value} {caught.value.__cause__}"


def test_a_password_is_kept_for_its_owner_alone(registry: FakeRegistry) -> None:
    registry.auth = Auth("basic")
    files = credential_files()
    write(files[0], {"auths": {"other.org": encoded("bob", "x")}, "more": 1})
    files[0].chmod(0o644)
    done = login(registry.host, AMY, files, limits=QUICK)
    assert (done.file, done.checked) == (files[0], True)
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o600
    assert json.loads(files[0].read_text())["more"] == 1
    assert (user(find(files, registry.host)), user(find(files, "other.org"))) == ("amy", "bob")
    assert logout(registry.host, files) == [files[0]]
    assert logout(registry.host, files) == []
    assert (find(files, registry.host), user(find(files, "other.org"))) == (None, "bob")


def test_a_wrong_password_is_not_kept(registry: FakeRegistry) -> None:
    for kind in ("basic", "bearer"):
        registry.auth = Auth(kind)
        with pytest.raises(Denied) as caught:
            login(registry.host, Credentials("amy", "wr0ng"), credential_files(), limits=QUICK)
        assert "wr0ng" not in str(caught.value)
    assert not credential_files()[0].exists()


def test_what_docker_keeps_stays_dockers() -> None:
    write(credential_files()[-1], {"auths": {"example.org": encoded("amy", "x")}})
    with pytest.raises(FetchError, match="Docker") as caught:
        logout("example.org", credential_files())
    assert caught.value.hint == "Remove it with: docker logout example.org"


def test_hosts() -> None:
    assert [
        host_of(one) for one in ("docker.io", "oci://GHCR.io", "https://localhost:5000/", "[::1]:5000")
    ] == [
        "registry-1.docker.io",
        "ghcr.io",
        "localhost:5000",
        "[::1]:5000",
    ]
    for one in ("", "ghcr.io/amy", "hf.co", "amy@ghcr.io", "-x"):
        with pytest.raises(InvalidName):
            host_of(one)


def test_a_password_shows_nowhere() -> None:
    assert "s3cret" not in repr(AMY)
