"""Whatever bytes come, what reads them says no in our own words, or says yes to something that is right."""

import gzip
import io
import json
import random
import tarfile
from contextlib import suppress
from typing import Any

import pytest

from modelkit.errors import FetchError, ModelkitError
from modelkit.fetch.ollama import OllamaManifest
from modelkit.fetch.registry.archive import members
from modelkit.fetch.registry.challenge import read_challenges
from modelkit.fetch.registry.kinds import read_package
from modelkit.fetch.registry.url import Url
from modelkit.store.paths import check_path

ROUNDS = [200, pytest.param(50_000, marks=pytest.mark.slow)]
PACK = "application/vnd.cncf.model."
SMALL = [None, True, -1, 0, 5, 1.5, "", "../x", "config.json", f"{PACK}weight.v1.tar", "sha256:" + "0" * 64]
KEYS = ["mediaType", "digest", "size", "annotations", "layers", "config", "artifactType", "schemaVersion"]
GOOD = {
    "schemaVersion": 2,
    "config": {"mediaType": f"{PACK}config.v1+json", "digest": "sha256:" + "0" * 64, "size": 5},
    "layers": [
        {
            "mediaType": f"{PACK}weight.config.v1.raw",
            "digest": "sha256:" + "1" * 64,
            "size": 5,
            "annotations": {"org.cncf.model.filepath": "config.json"},
        }
    ],
}


def archive(form: int) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=form) as out:
        for name, data in (("a.json", b"x" * 700), ("d/" + "e" * 120, b"y" * 3), ("z", b"")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    return raw.getvalue()


def changed(raw: bytes, rng: random.Random) -> bytes:
    """Other bytes, fewer, more; the sums of most headers made right again."""
    data = bytearray(raw)
    for _ in range(rng.randint(1, 6)):
        place, what = rng.randrange(min(len(data), 3000) or 1), rng.random()
        if what < 0.6 and place < len(data):
            data[place] = rng.randrange(256)
        elif what < 0.8:
            del data[place : place + rng.randint(1, 600)]
        else:
            data[place:place] = rng.randbytes(rng.randint(1, 20))
    for start in range(0, len(data) - 511, 512):
        if rng.random() < 0.7 and data[start + 257 : start + 262] == b"ustar":
            head = data[start : start + 512]
            head[148:156] = b" " * 8
            data[start + 148 : start + 156] = b"%06o\0 " % sum(head)
    return bytes(data)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_archives(rounds: int) -> None:
    rng, whole = random.Random(1), [archive(tarfile.PAX_FORMAT), archive(tarfile.GNU_FORMAT)]
    for _ in range(rounds):
        data, packing = changed(rng.choice(whole), rng), rng.choice(["tar", "tar+gzip"])
        data = gzip.compress(data, 1) if packing != "tar" else data
        with suppress(ModelkitError):
            for member in members(io.BytesIO(data), len(data), packing, "it"):
                assert sum(map(len, member.pieces)) == member.size_bytes
                assert check_path(member.path) == member.path


@pytest.mark.parametrize("taken", [0, 1])
def test_what_is_left_of_a_file_is_passed_over(taken: int) -> None:
    data = archive(tarfile.PAX_FORMAT)
    names: list[str] = []
    for member in members(io.BytesIO(data), len(data), "tar", "it"):
        names.append(member.path)
        for _ in range(taken):
            next(member.pieces, None)
    assert names == ["a.json", "d/" + "e" * 120, "z"]


def any_value(rng: random.Random, depth: int = 0) -> Any:
    what = rng.random()
    if depth > 4 or what < 0.4:
        return rng.choice(SMALL)
    if what < 0.7:
        return [any_value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(KEYS): any_value(rng, depth + 1) for _ in range(rng.randint(0, 5))}


def mutated(value: Any, rng: random.Random) -> Any:
    if rng.random() < 0.15:
        return any_value(rng)
    if isinstance(value, dict):
        return {key: mutated(one, rng) for key, one in value.items()}
    return [mutated(one, rng) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("rounds", ROUNDS)
def test_manifests(rounds: int) -> None:
    rng = random.Random(2)
    for _ in range(rounds):
        value = mutated(GOOD, rng)
        with suppress(ModelkitError):
            OllamaManifest.parse(json.dumps(value).encode())
        if isinstance(value, dict):
            try:
                package = read_package(value)
            except ModelkitError:
                continue
            assert all(blob.size_bytes >= 0 for blob in package.blobs)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_headers_and_addresses(rounds: int) -> None:
    rng, letters = random.Random(3), ' ,="\\abBearer realm:/?#[]@%\t\x00é'
    for _ in range(rounds):
        text = "".join(rng.choice(letters) for _ in range(rng.randint(0, 60)))
        read_challenges([text])
        for read, said in ((Url.parse, f"https://{text}"), (Url.parse("https://a/v2/").join, text)):
            try:
                url = read(said)
            except FetchError:
                continue
            assert Url.parse(str(url)) == url
            assert url.scheme in ("http", "https")
