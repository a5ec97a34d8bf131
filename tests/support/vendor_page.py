"""Fetch the page's libraries: `python -m tests.support.vendor_page [NAME@VERSION ...]`, with npm on the path.

Without arguments, the versions that vendor.json says, which changes nothing unless a file was touched. The
files are those of the packages, byte for byte; vendor.json holds their hashes.
"""

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "modelkit" / "server" / "page"
FOLDER = PAGE / "vendor"
LIST = FOLDER / "vendor.json"


def hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _packed(package: str, version: str, into: Path) -> Path:
    """The package's tarball."""
    command = ["npm", "pack", "--silent", "--pack-destination", str(into), f"{package}@{version}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return into / done.stdout.strip().splitlines()[-1]


def _fetch(library: dict[str, Any], into: Path) -> dict[str, Any]:
    """What vendor.json says of it, with its files written."""
    name, version = library["package"], library["version"]
    tarball = _packed(name, version, into)
    base = name.rsplit("/", 1)[-1]
    with tarfile.open(tarball) as opened:
        members = {member.name: member for member in opened.getmembers() if member.isfile()}
        wanted = {kept: f"package/{inside}" for kept, inside in library["from"].items()}
        if (fonts := library.get("fonts")) is not None:
            wanted |= {
                f"{fonts}/{name.rsplit('/', 1)[-1]}": name
                for name in members
                if name.startswith("package/dist/fonts/") and name.endswith(".woff2")
            }
        for kept, inside in wanted.items():
            file = opened.extractfile(members[inside])
            assert file is not None
            (FOLDER / kept).parent.mkdir(parents=True, exist_ok=True)
            (FOLDER / kept).write_bytes(file.read())
    return {
        **library,
        "url": f"https://registry.npmjs.org/{name}/-/{base}-{version}.tgz",
        "sha256": hash_of(tarball),
        "files": {kept: hash_of(FOLDER / kept) for kept in sorted(wanted)},
    }


def main(asked: list[str]) -> None:
    versions = dict(one.rsplit("@", 1) for one in asked)
    libraries = json.loads(LIST.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        libraries = [
            _fetch({**one, "version": versions.get(one["package"], one["version"])}, Path(folder))
            for one in libraries
        ]
    LIST.write_text(json.dumps(libraries, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
