"""The pages of docs/ say what the program says, and lead to each other."""

import inspect
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import modelkit
from modelkit.server.app import ROOMS
from tests.support.cli_docs import DOCS, current
from tests.test_floors import FLOORS

ROOT = DOCS.parent
README = ROOT / "README.md"


@pytest.mark.parametrize("page", ["cli.md", "words.md"])
def test_generated_pages_are_current(page: str) -> None:
    """`python -m tests.support.cli_docs` mends this."""
    text = (DOCS / page).read_text(encoding="utf-8")
    assert current(text) == text


def test_options_take_what_a_word_of_ours_says() -> None:
    """click's own are the names of its types: INTEGER RANGE."""
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert re.findall(r"`-[^`]*\b(?:INTEGER|FLOAT|RANGE|UUID|DATETIME)\b[^`]*`", page) == []


@pytest.mark.parametrize("page", [README, *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", prose):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings: a second one of the same name has a number."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = set[str]()
    for heading in re.findall(r"^#+ (.*)", prose, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(next(one for n in range(99) if (one := f"{name}-{n}" if n else name) not in found))
    return found


@pytest.mark.parametrize(
    "page",
    [*ROOT.glob("*.md"), ROOT / "examples/README.md", *sorted(DOCS.glob("*.md"))],
    ids=lambda page: page.name,
)
def test_links_lead_to_headings_that_are_there(page: Path) -> None:
    for path, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
        assert anchor in _anchors(page.parent / path if path else page), f"{path}#{anchor}"


def test_the_readme_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\(docs/([^)#/]+)[)#]", README.read_text(encoding="utf-8")))
    assert linked == {page.name for page in DOCS.glob("*.md")}


def test_the_page_on_commands_has_every_variable_of_the_environment() -> None:
    """But for those that our own processes tell each other."""
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    files = [path for room in ("modelkit", "runtime") for path in (ROOT / room).rglob("*.py")]
    read = {name for path in files for name in re.findall(r"\bMODELKIT_[A-Z_]+", path.read_text("utf-8"))}
    assert len(read) > 10
    assert read - set(re.findall(r"`(\w+)", page)) == {"MODELKIT_RANKS_LEADER"}


def test_the_page_on_python_has_every_public_name() -> None:
    text = (DOCS / "python.md").read_text(encoding="utf-8")
    missing = [
        name for name in modelkit.__all__ if name != "__version__" and not re.search(rf"\b{name}\b", text)
    ]
    assert missing == []


@pytest.mark.parametrize("kind", ["AsyncModel", "Generation", "GenerationStream", "Model"])
def test_the_page_on_python_has_what_a_class_offers(kind: str) -> None:
    """In backticks, so that no word of a sentence stands for it."""
    text = (DOCS / "python.md").read_text(encoding="utf-8")
    named = {name for code in re.findall(r"`([^`\n]+)`", text) for name in re.findall(r"\w+", code)}
    found = getattr(modelkit, kind)
    public = {name for name in {*vars(found), *found.__annotations__} if not name.startswith("_")}
    assert public - named == set()


def test_the_page_on_python_has_every_argument() -> None:
    text = (DOCS / "python.md").read_text(encoding="utf-8")
    offered = {**vars(modelkit.Model), **{name: getattr(modelkit, name) for name in modelkit.__all__}}
    for name, function in offered.items():
        if not name.startswith("_") and inspect.isfunction(function):
            named = re.search(rf"`{name}\(([^`]*)\)`", text)
            assert named, name
            taken = [one for one in inspect.signature(function).parameters if one != "self"]
            assert re.findall(r"\w+", named[1]) == taken, name


def test_the_page_on_serving_has_every_endpoint() -> None:
    page = (DOCS / "serving.md").read_text(encoding="utf-8")
    section = page.partition("## Endpoints\n")[2].partition("\n## ")[0]
    named = {name for code in re.findall(r"`([^`\n]+)`", section) for name in re.findall(r"[\w-]+", code)}
    rooms = [room for room in ROOMS if ".page." not in room]
    paths = [route.path for room in rooms for route in import_module(room).DIALECT.routes]
    ends = {re.sub(r"/\{.*", "", path).rpartition("/")[2] for path in paths}
    assert len(ends) > 25
    assert ends - named == set()


def test_the_picture_of_the_floors_has_every_room() -> None:
    page = (DOCS / "design.md").read_text(encoding="utf-8")
    picture = page.partition("```\n")[2].partition("```")[0]
    kinds = ("snapshot", "protocol", "codec", "lanes")
    named = {*re.findall(r"[a-z_.]+", picture), *(f"runtime.cache.{kind}" for kind in kinds)}
    assert {room for _, rooms in FLOORS for room in rooms} - named == set()


def test_messages_of_the_page_on_troubles_are_the_programs_own() -> None:
    """Each is quoted as it is, `...` standing for what differs."""
    files = [*(DOCS.parent / "modelkit").rglob("*.py"), *(DOCS.parent / "runtime").rglob("*.py")]
    source = "\n".join(path.read_text(encoding="utf-8") for path in files)
    said = re.sub(r'"\s*f?"', "", source)  # texts that are written over several lines
    said = re.sub(r"\{[^{}]*\}", "...", said)
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    headings = re.findall(r"^\*\*(.*?)\*\*", page, re.MULTILINE | re.DOTALL)
    found = [one for heading in headings for one in re.findall(r"`([^`]+)`", heading)]
    quoted = [one.replace("\n", " ") for one in found if not one.startswith("modelkit ")]
    assert len(quoted) > 10
    parts = [part.strip(" '") for one in quoted for part in one.split("...") if len(part) > 6]
    assert [part for part in parts if part not in said] == []


def _shown(page: str) -> list[tuple[str, str]]:
    """The commands of a page's consoles that a test can run, and what stands under each."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    entries = [entry for block in blocks for entry in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    pairs = [entry.partition("\n") for entry in entries]
    return [(command, said) for command, _, said in pairs if not command.startswith(("curl", "pip"))]


@pytest.mark.skipif(sys.platform != "linux", reason="the pages show a processor's texts")
@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_a_console_shows_what_one_will_see(page: str, tmp_path: Path) -> None:
    for name in ("Modelfile.example", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    program = shlex.join([sys.executable, "-m", "modelkit"])
    environment = {**os.environ, "MODELKIT_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    for command, expected in _shown(page):
        ran = subprocess.run(
            command.replace("modelkit ", f"{program} ", 1) + " 2>&1",
            shell=True,
            cwd=tmp_path,
            env={**environment, "COLUMNS": "120"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        said, wanted = " ".join(ran.stdout.split()), " ".join(expected.split())
        if wanted.startswith("... "):
            assert said.endswith(wanted.removeprefix("...")), command
        else:
            assert said == wanted, command
