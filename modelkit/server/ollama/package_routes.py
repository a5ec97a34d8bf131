"""The routes about packages: what is there, what it holds, and what becomes of it.

They act on the store with the checks that the command line has, on worker threads.
"""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from modelkit import __version__
from modelkit.address import read_pullable
from modelkit.errors import InvalidName
from modelkit.fetch.access import Access
from modelkit.packages import copy as copy_package
from modelkit.packages import remove
from modelkit.server.adapter_choice import split_adapters
from modelkit.server.faults import refused
from modelkit.server.http.body import parts_of, read_json
from modelkit.server.http.own_headers import with_ignored
from modelkit.server.ollama.descriptions import running, show, tags
from modelkit.server.ollama.reading import NAMES, read_model
from modelkit.server.ollama.recipes import laid_out, read_create
from modelkit.server.ollama.staging import Staging
from modelkit.server.ollama.tasks import TaskProgress, run_task
from modelkit.server.replying import naming, read
from modelkit.server.serving import apart, serving_of
from modelkit.store import Name, Store
from runtime.quoting import shown

_MOVING = NAMES | {"insecure", "stream"}
SPOKEN = "0.32.0"
"""The version of Ollama whose interface this is. Programs made for Ollama ask, and refuse older ones."""


async def list_tags(request: Request) -> Response:
    return JSONResponse(await apart(request, tags, _home(request)))


async def list_running(request: Request) -> Response:
    return JSONResponse(await apart(request, running, _home(request), serving_of(request).pool.shown()))


async def show_package(request: Request) -> Response:
    body = await read_json(request)
    verbose = body.flag("verbose", default=False)
    name, adapters = split_adapters(read_model(body))
    said = await apart(request, show, _home(request), name, adapters, verbose=verbose)
    return with_ignored(JSONResponse(said), body.unknown({*NAMES, "verbose"}))


async def copy(request: Request) -> Response:
    body = await read_json(request)
    source, target = body.needed_text("source"), body.needed_text("destination")
    await apart(request, copy_package, source, target, home=_home(request))
    return with_ignored(Response(), body.unknown({"source", "destination"}))


async def delete(request: Request) -> Response:
    body = await read_json(request)
    name = read_model(body)
    await apart(request, remove, name, home=_home(request))
    serving_of(request).pool.forget(name)
    return with_ignored(Response(), body.unknown(NAMES))


async def pull(request: Request) -> Response:
    body = await read_json(request)
    name, insecure, home = read_model(body), body.flag("insecure", default=False), _home(request)

    def work(progress: TaskProgress) -> None:
        from modelkit.pack import pulling

        address = pulling.read_pull_address(_address(name))
        pulling.pull(address, Store(home), Access(insecure=insecure, listener=progress), name=_called(name))

    response = await run_task(request, work, streamed=body.flag("stream", default=True))
    return with_ignored(response, body.unknown(_MOVING))


async def push(request: Request) -> Response:
    """A name here with a registry in it, `registry.example.org/amy/story:q4`, is the address there too."""
    body = await read_json(request)
    name, insecure, home = read_model(body), body.flag("insecure", default=False), _home(request)

    def work(progress: TaskProgress) -> None:
        from modelkit.fetch.registry import push as registry

        Store(home).digest(name)
        if read_pullable(name) is None:
            raise refused(
                "invalid_request",
                f"{shown(name)} names no registry to push to; copy it to a name that begins with one, "
                "such as registry.example.org/amy/story:q4, and push that",
                "model",
            )
        there = registry.read_target(name)
        registry.push(name, there, Store(home), Access(insecure=insecure, listener=progress))

    response = await run_task(request, work, streamed=body.flag("stream", default=True))
    return with_ignored(response, body.unknown(_MOVING))


async def create(request: Request) -> Response:
    wanted, home = await read(request, read_create), _home(request)

    def work(progress: TaskProgress) -> None:
        from modelkit.pack import pulling
        from modelkit.pack.build import build

        with laid_out(wanted, home) as recipe:
            store = Store(home)
            access = pulling.bring(recipe, store, Access(listener=progress))
            made = build(
                recipe,
                wanted.name,
                store,
                quantize=wanted.quantize,
                quantize_draft=wanted.quantize_draft,
                progress=progress,
                access=access,
            )
        for note in made.notes:
            progress.say(note)

    return naming(request, await run_task(request, work, streamed=wanted.stream), wanted.ignored)


async def blob(request: Request) -> Response:
    """HEAD: has it been sent? POST: here it comes."""
    digest, staging = request.path_params["digest"], Staging(_home(request))
    found = await apart(request, staging.find, digest)
    if request.method != "POST":
        return Response(status_code=404 if found is None else 200)
    if found is not None:
        return Response(status_code=200)
    size = request.headers.get("content-length", "")
    size_bytes = int(size) if size.isdecimal() and len(size) < 18 else None
    incoming = await apart(request, staging.begin, digest, size_bytes)
    try:
        async for part in parts_of(request):
            await apart(request, incoming.write, part)
        await apart(request, incoming.finish)
    finally:
        await apart(request, incoming.close)
    return Response(status_code=201)


async def version(request: Request) -> Response:
    """Three numbers: clients cut it at the dots."""
    return JSONResponse({"version": SPOKEN, "modelkit": __version__})


def _address(name: str) -> str:
    """As Ollama's clients mean it: what has a host is from there, and a bare name of Ollama's library."""
    if read_pullable(name) is not None:
        return name
    return f"ollama.com/{name}" if "/" in name else f"ollama.com/library/{name}"


def _called(name: str) -> Name | None:
    """By the name that a client pulls, it asks for the model afterwards, host and all. None: an address
    that is not a name goes by what it gives.
    """
    try:
        return Name.new(name)
    except InvalidName:
        return None


def _home(request: Request) -> Path:
    return serving_of(request).settings.home


ROUTES = (
    Route("/api/tags", list_tags),
    Route("/api/ps", list_running),
    Route("/api/show", show_package, methods=["POST"]),
    Route("/api/copy", copy, methods=["POST"]),
    Route("/api/delete", delete, methods=["DELETE"]),
    Route("/api/pull", pull, methods=["POST"]),
    Route("/api/push", push, methods=["POST"]),
    Route("/api/create", create, methods=["POST"]),
    Route("/api/blobs/{digest}", blob, methods=["HEAD", "POST"]),
    Route("/api/version", version),
)
