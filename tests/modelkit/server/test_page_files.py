"""The page's files: whole, named, unchanged, and nothing else is served."""

import asyncio
import gzip
import json
import re

import pytest
from starlette.testclient import TestClient

from modelkit.server.access import Access
from modelkit.server.app import make_app
from modelkit.server.page.routes import ALIVE, POLICY, files
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from tests.support.vendor_page import FOLDER, LIST, PAGE, hash_of

HTML = {"accept": "text/html,application/xhtml+xml"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Of a server that wants a key, which these requests do not have."""
    settings = Settings.from_environment({"MODELKIT_HOME": str(tmp_path_factory.mktemp("home"))})
    serving = Serving(pool=None, settings=settings, access=Access(keys=("secret",)))  # type: ignore[arg-type]
    return TestClient(make_app(serving), base_url="http://localhost", headers={"accept-encoding": ""})


def test_vendored_files_are_those_of_their_packages() -> None:
    libraries = json.loads(LIST.read_text(encoding="utf-8"))
    known = {name: value for one in libraries for name, value in one["files"].items()}
    there = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert there - known.keys() == {"vendor.json", "katex/fonts/OFL.txt"}
    assert {name: hash_of(FOLDER / name) for name in known} == known
    for one in libraries:
        assert one["version"] in one["url"]
        assert one["licence"]
        assert any(name.endswith("/LICENSE") for name in one["files"]), one["package"]


def test_the_page_names_every_module_and_each_is_there() -> None:
    """What is not named in the page is fetched only when another module has been read: a slower start."""
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    named = set(re.findall(r'(?:href|src)="page/([^"]+)"', page))
    modules = {path.relative_to(PAGE).as_posix() for path in (PAGE / "js").glob("*.js")}
    styles = {path.relative_to(PAGE).as_posix() for path in (PAGE / "css").glob("*.css")}
    assert modules | styles <= named <= files().keys()
    for module in modules:
        for imported in re.findall(r'from "(\./[^"]+)"', (PAGE / module).read_text(encoding="utf-8")):
            assert (PAGE / "js" / imported).is_file(), f"{module} imports {imported}"


def test_every_module_says_what_it_is_for() -> None:
    for path in (PAGE / "js").glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert text.startswith("// "), path.name
        assert max(map(len, text.splitlines())) <= 200, path.name
        assert "innerHTML" not in text, path.name
        assert "eval(" not in text, path.name


@pytest.mark.parametrize(
    ("headers", "page"),
    [(HTML, True), ({"accept": "*/*"}, False), ({"accept": "application/json"}, False)],
)
def test_a_browser_gets_the_page_and_a_probe_the_sentence(
    client: TestClient, headers: dict[str, str], page: bool
) -> None:
    answer = client.get("/", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["vary"].startswith("accept")
    assert ("<!doctype html>" in answer.text) is page
    assert (answer.text == ALIVE) is not page
    assert client.head("/", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/", "/chat", "/page/js/app.js", "/page/vendor/katex/katex.min.css"])
def test_a_file_comes_with_its_policy_and_is_asked_for_once(client: TestClient, path: str) -> None:
    answer = client.get(path, headers=HTML)
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-cache"
    again = client.get(path, headers={**HTML, "if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get(path, headers={**HTML, "if-none-match": '"another"'}).status_code == 200


def test_nothing_is_packed_on_the_event_loop(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[bool] = []

    def compress(data: bytes, *args: object, **options: object) -> bytes:
        try:
            asyncio.get_running_loop()
            loops.append(True)
        except RuntimeError:
            loops.append(False)
        return data

    path = "js/app.js"
    monkeypatch.setattr("modelkit.server.page.files.gzip.compress", compress)
    monkeypatch.setattr(files()[path], "_packed", b"")
    with client.stream("GET", f"/page/{path}", headers={"accept-encoding": "gzip"}) as answer:
        assert answer.headers["content-encoding"] == "gzip"
    assert loops == [False]


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [("gzip", True), ("br, gzip;q=0.5", True), ("gzip;q=0", False), ("br", False), ("", False)],
)
def test_gzip_only_where_it_is_asked_for(client: TestClient, accepted: str, packed: bool) -> None:
    with client.stream("GET", "/page/js/app.js", headers={"accept-encoding": accepted}) as answer:
        raw = b"".join(answer.iter_raw())
    assert (answer.headers.get("content-encoding") == "gzip") is packed
    assert (gzip.decompress(raw) if packed else raw) == (PAGE / "js/app.js").read_bytes()


@pytest.mark.parametrize(
    "path",
    [
        *("/page/routes.py", "/page/../routes.py", "/page/%2e%2e/app.py", "/page//etc/passwd"),
        *("/page/vendor/vendor.json", "/page/js/", "/page", "/page/index.html"),
    ],
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(path, headers={**HTML, "authorization": "Bearer secret"}).status_code == 404
    assert client.get(path, headers=HTML).status_code == 401


def test_the_page_is_all_that_needs_no_key(client: TestClient) -> None:
    assert client.post("/modelkit/v1/chat", json={}).status_code == 401
    assert client.get("/modelkit/v1/defaults").status_code == 401
