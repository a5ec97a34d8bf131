"""What HTTP costs: `modelkit serve` paired with the engine called directly, in one process.

    python benchmarks/serve.py [--layers 8] [--width 512] [--tokens 128] [--rounds 3] [--streams 1,8,32]
                               [--mlx-lm PYTHON] [--llama-cpp PYTHON]

The model is made here: random weights, bytes for tokens. The server and the engine run in this process, the
clients in another. Every number of streams is measured directly, over HTTP, and directly again, in turns; the
times of both are the engine's own (from the first token to the last), so the loss is what the engine loses
while a server works beside it. Here the clients sleep until their answers are over, so that they take nothing
from the cores that the engine computes on. Where the direct runs differ by more than the loss could be, the
machine is too busy to tell, and that is said; processor time per token, prompts included, tells more then:
that of the process, and that of the event loop's thread alone.

Then, as clients see it: time to the first piece; the gaps between pieces of four streams while a prompt of
4,000 tokens comes in; and what 200 streams leave behind whose clients have left. PYTHON are interpreters
with mlx-lm and llama-cpp-python[server]: their servers get the same model and the same requests in this run.
All of it takes five minutes on two quiet cores: answers that take too long are cut off.
"""

import argparse
import asyncio
import io
import json
import math
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import modelkit  # noqa: E402
from modelkit.model import Model  # noqa: E402
from modelkit.server.app import make_app  # noqa: E402
from modelkit.server.http.listening import Server  # noqa: E402
from modelkit.server.http.place import Place, listen  # noqa: E402
from modelkit.server.log import Log  # noqa: E402
from modelkit.server.models.pool import Pool  # noqa: E402
from modelkit.server.serve import new_loop  # noqa: E402
from modelkit.server.serving import Serving  # noqa: E402
from modelkit.server.trace import Trace  # noqa: E402
from modelkit.settings import Settings  # noqa: E402
from runtime.engine.request import Usage  # noqa: E402
from tests.support.tiny import TEMPLATE, write_model, write_tokenizer  # noqa: E402

LONG_TOKENS, DECODERS, LEAVING = 4000, 4, 200
LETTERS = 94
UNSTEADY = 0.05
LIMIT_S = 15.0
"""For what clients ask at once; what has come by then counts."""


class Kept(Log):
    """Keeps what a request has cost, in place of a line."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.usages: list[Usage] = []

    def request(self, trace: Trace) -> None:
        self.usages += trace.usages


class Clients:
    """`serve_client.py`, in a process of its own."""

    def __init__(self) -> None:
        script = str(Path(__file__).with_name("serve_client.py"))
        self._process = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, port: int, bodies: Sequence[dict[str, Any]], what: str = "at once", **more: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        wanted = {"what": what, "port": port, "bodies": list(bodies), "limit_s": LIMIT_S, **more}
        print(json.dumps(wanted), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@dataclass(frozen=True)
class Seen:
    """What clients saw of one server."""

    speed: dict[int, float]
    """Tokens a second of all streams together, prompts included, by the number of streams."""
    first_s: float
    """Median time to the first piece, one stream."""
    gap_s: float
    """The gap that 1 of 100 pieces exceeds while the long prompt comes in; NaN where no stream ran then."""
    longest_s: float


def body(name: str, number: int, tokens: int, prompt: int = 48) -> dict[str, Any]:
    """A request. Every prompt begins otherwise, so that nothing is found again."""
    text = (f"{number}-{time.monotonic_ns()}-" * prompt)[:prompt]
    return {"model": name, "prompt": text, "max_tokens": tokens, "temperature": 0}


def directly(model: Model, count: int, tokens: int) -> list[Usage]:
    asked = [body("", number, tokens) for number in range(count)]
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(lambda one: _answer(model, one["prompt"], tokens), asked))


def _answer(model: Model, prompt: str, tokens: int) -> Usage:
    return model.generate(prompt, raw=True, num_predict=tokens, temperature=0).usage


def tokens_a_second(streams: Sequence[dict[str, Any]]) -> float:
    """Of all streams together, from the first request to the last token."""
    came = [moment for one in streams for moment in one["came"]]
    if not came:  # a server that still computes for those who have left
        return 0.0
    return len(came) / (max(came) - min(one["sent_s"] for one in streams))


class Watch:
    """What ran, and what it took of the processors, in seconds a token."""

    def __init__(self) -> None:
        self.speeds, self.costs_s, self.loop_s = list[float](), list[float](), list[float]()

    def timed(self, run: Callable[[], Sequence[Usage]], loop: Callable[[], float] = lambda: 0.0) -> None:
        """loop: the processor time of the event loop's thread, in seconds."""
        began_s, loop_began_s = time.process_time(), loop()
        usages = run()
        took_s, loop_took_s = time.process_time() - began_s, loop() - loop_began_s
        tokens = sum(one.generated_tokens for one in usages)
        self.speeds.append(sum((one.generated_tokens - 1) / one.decode_s for one in usages))
        self.costs_s.append(took_s / tokens)
        self.loop_s.append(loop_took_s / tokens)


def paired(model: Model, kept: Kept, clients: Clients, here: "Here", options: argparse.Namespace) -> None:
    print("Tokens a second while decoding, by the engine's clock; processor time for a token:")
    titles = f"{'streams':>8} {'direct':>10} {'over HTTP':>10} {'lost':>8} {'direct':>10} {'over HTTP':>10}"
    print(f"{titles} {'its loop':>10}")
    for count in options.streams:
        plain, served = Watch(), Watch()

        def over_http(count: int = count) -> Sequence[Usage]:
            kept.usages.clear()
            asked = [body("tiny", number, options.tokens) for number in range(count)]
            clients.ask(here.port, asked, "sleeping")
            while here.serving.state.underway:  # the last line of the log is behind the last byte
                time.sleep(0.001)
            return kept.usages

        for _ in range(options.rounds):
            plain.timed(lambda count=count: directly(model, count, options.tokens))
            served.timed(over_http, here.loop_s)
            plain.timed(lambda count=count: directly(model, count, options.tokens))
        print(_compared(count, plain, served))


def _compared(count: int, plain: Watch, served: Watch) -> str:
    """One line of the table. Every round measured directly, over HTTP, and directly."""
    middle, pairs = statistics.median, list(zip(plain.speeds[::2], plain.speeds[1::2], strict=True))
    lost = middle(1 - 2 * here / sum(pair) for pair, here in zip(pairs, served.speeds, strict=True))
    unsteady = sum(abs(before / after - 1) > UNSTEADY for before, after in pairs)
    speeds = f"{count:>8} {middle(plain.speeds):>10.1f} {middle(served.speeds):>10.1f} {lost:>8.1%}"
    costs = "".join(f" {middle(one.costs_s) * 1e3:>7.3f} ms" for one in (plain, served))
    costs += f" {middle(served.loop_s) * 1e6:>7.1f} us"
    return speeds + costs + (f"   {unsteady} of {len(pairs)} rounds unsteady" if unsteady else "")


def seen(clients: Clients, port: int, name: str, options: argparse.Namespace) -> Seen:
    """What clients see."""
    clients.ask(port, [body(name, 0, 8)])
    speed = {
        count: tokens_a_second(clients.ask(port, [body(name, n, options.tokens) for n in range(count)]))
        for count in options.streams
    }
    single = [clients.ask(port, [body(name, n, 4)])[0] for n in range(8)]
    many = [body(name, n, 4000) for n in range(DECODERS)]
    long = body(name, 99, 2, LONG_TOKENS)
    *streams, late = clients.ask(port, [*many, long], "long", after_s=1.0)
    read_s = late["came"][0] if late["came"] else math.inf  # the limit came before its first token
    gaps = [
        there - here
        for one in streams
        for here, there in zip(one["came"], one["came"][1:], strict=False)
        if there >= late["sent_s"] and here <= read_s
    ]
    gaps.sort()
    first = statistics.median([one["came"][0] - one["sent_s"] for one in single if one["came"]] or [math.nan])
    return Seen(
        speed, first, gaps[int(len(gaps) * 0.99)] if gaps else math.nan, gaps[-1] if gaps else math.nan
    )


def left_behind(model: Model, here: "Here", clients: Clients) -> None:
    engine: Any = model._running.engine  # pyright: ignore[reportPrivateUsage]
    asked, sizes = body("tiny", 7, 2000), list[int]()
    for _ in range(2):
        clients.ask(here.port, [asked], "leave", count=LEAVING)
        end_s = time.monotonic() + 20
        while (here.serving.state.underway or engine._loop._places.rows) and time.monotonic() < end_s:
            time.sleep(0.02)
        sizes.append(resident_bytes())
    loop, leases = engine._loop, len(here.serving.state.underway)
    rows = len(loop._places.rows) + len(loop._waiting)
    threads = threading.active_count()
    print(f"{LEAVING} clients that left, twice: {rows} rows, {leases} leases, {threads} threads are left;")
    print(f"the second time added {(sizes[1] - sizes[0]) / 2**20:.1f} MiB")


def resident_bytes() -> int:
    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@dataclass(frozen=True)
class Here:
    """Our server, in this process."""

    serving: Serving
    port: int
    thread: threading.Thread

    def loop_s(self) -> float:
        """The processor time of its event loop's thread; NaN where the system does not say."""
        if not hasattr(time, "pthread_getcpuclockid") or self.thread.ident is None:
            return math.nan
        return time.clock_gettime(time.pthread_getcpuclockid(self.thread.ident))


@contextmanager
def served(model: Model, kept: Kept, home: Path) -> Iterator[Here]:
    """Our server, on a thread of this process."""
    settings, ready, found = Settings.from_environment({"MODELKIT_HOME": str(home)}), threading.Event(), []
    serving = Serving(Pool(lambda _: model), settings, log=kept)
    place = Place(port=0)
    listeners = listen(place)

    async def serve() -> None:
        server = Server(make_app(serving), serving, place, ready.set)
        found.append((server, asyncio.get_running_loop()))
        await server.serve(listeners)

    def run() -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        yield Here(serving, listeners[0].getsockname()[1], thread)
    finally:
        server, loop = found[0]
        loop.call_soon_threadsafe(server.stop)
        thread.join()


@contextmanager
def peer(command: Sequence[str], port: int) -> Iterator[int | None]:
    """Another server; None where it does not come up."""
    arguments = [*command, "--port", str(port)]
    with tempfile.TemporaryFile() as said:  # a pipe that nobody reads would fill, and hold it up
        process = subprocess.Popen(arguments, stdout=said, stderr=said)
        try:
            yield port if _comes_up(process, port) else None
        finally:
            process.kill()
            if process.wait() not in (-9, 0):
                said.seek(0)
                print(f"  {command[0]}: {said.read().decode(errors='replace').strip().splitlines()[-1:]}")


def _comes_up(process: subprocess.Popen[bytes], port: int) -> bool:
    end_s = time.monotonic() + 90
    while process.poll() is None and time.monotonic() < end_s:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        time.sleep(0.2)
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def compared(options: argparse.Namespace, folder: Path, ours: Seen, clients: Clients) -> None:
    """The table of servers, as clients see them."""
    rows: list[tuple[str, Seen]] = [("modelkit", ours)]
    peers: list[tuple[str, Callable[[], list[str]]]] = []
    if python := options.mlx_lm:
        peers.append(("mlx_lm.server", lambda: [python, "-m", "mlx_lm", "server", "--model", str(folder)]))
    if other := options.llama_cpp:
        peers.append(("llama_cpp.server", lambda: _llama(other, folder)))
    for name, command in peers:
        with peer(command(), free_port()) as port:
            if port is None:
                print(f"{name} did not start")
                continue
            model = str(folder) if name == "mlx_lm.server" else "tiny"
            try:
                rows.append((name, seen(clients, port, model, options)))
            except (IndexError, ValueError, ZeroDivisionError) as error:
                print(f"{name} did not answer all: {error!r}")
    counts = "".join(f"{f'{count} str.':>10}" for count in options.streams)
    print(f"\n{'':>18}{counts}   tokens a second   {'first':>8} {'p99 gap':>9} {'longest':>9}")
    for name, one in rows:
        speeds = "".join(f"{one.speed[count]:>10.1f}" for count in options.streams)
        times = f"{_ms(one.first_s):>8} {_ms(one.gap_s):>9} {_ms(one.longest_s):>9}"
        print(f"{name:>18}{speeds}{'':>19} {times}")
    print(f"p99 gap, longest: of {DECODERS} streams while a prompt of {LONG_TOKENS:,} tokens comes in")


def _ms(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{seconds * 1e3:.0f} ms"


def _llama(python: str, folder: Path) -> list[str]:
    import modelkit.packages as packages

    file, home = folder.parent / "tiny.gguf", folder.parent / "home"
    (folder.parent / "Modelfile").write_text("FROM ./model\n", encoding="utf-8")
    modelkit.create(folder.parent / "Modelfile", name="tiny", home=home)
    packages.export_gguf("tiny", file, home=home)
    return [python, "-m", "llama_cpp.server", "--model", str(file), "--n_ctx", "8192"]


def write_letters(folder: Path, options: argparse.Namespace) -> None:
    """A model whose tokens are the printable letters of ASCII, so that each is a piece of its own, and that
    never ends an answer.
    """
    write_model(
        folder,
        template=TEMPLATE,
        vocab_size=LETTERS,
        hidden_size=options.width,
        intermediate_size=3 * options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.width // 64,
        num_key_value_heads=max(options.width // 128, 1),
        head_dim=64,
        max_position_embeddings=8192,
    )
    write_tokenizer(folder, LETTERS)
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind), encoding="utf-8")


def _counts(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=_counts, default=[1, 8, 32])
    parser.add_argument("--mlx-lm", metavar="PYTHON")
    parser.add_argument("--llama-cpp", metavar="PYTHON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "model")
        write_letters(folder, options)
        clients, kept = Clients(), Kept()
        with (
            modelkit.load(
                folder, home=place, draft_num_predict=0, cache_memory=0, num_parallel=max(options.streams)
            ) as model,
            served(model, kept, Path(place)) as here,
        ):
            directly(model, max(options.streams), 8)  # places for all rows, and what is compiled once
            paired(model, kept, clients, here, options)
            left_behind(model, here, clients)
            ours = seen(clients, here.port, "tiny", options)
        compared(options, folder, ours, clients)
        clients.close()


if __name__ == "__main__":
    main()
