"""The clients of benchmarks/serve.py, in a process of their own: streams over plain sockets, with times.

One JSON object a line on standard input says what to ask, one on standard output what came back.
"""

import asyncio
import json
import socket
import sys
import time
from collections.abc import Coroutine
from typing import Any


def request(port: int, body: dict[str, Any]) -> bytes:
    data = json.dumps({**body, "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data


def sleeping(port: int, bodies: list[dict[str, Any]], limit_s: float) -> list[dict[str, Any]]:
    """All at once, read when they are over: the kernel keeps what comes, and this process takes no time from
    the cores that the server computes on, as a client on another machine takes none.
    """
    asked = [socket.create_connection(("127.0.0.1", port), limit_s) for _ in bodies]
    for one, body in zip(asked, bodies, strict=True):
        one.sendall(request(port, body))
    for one in asked:
        with one:
            while one.recv(1 << 20, socket.MSG_WAITALL):  # wakes at the end of the answer, or at a megabyte
                pass
    return []


def letters(line: bytes) -> int:
    """In the text of an event: each is a token of the model that is asked, however many came together."""
    if not line.startswith(b"data: {"):
        return 0
    choices = json.loads(line[6:]).get("choices") or [{}]
    return len(choices[0].get("text") or "")


async def ask(port: int, body: dict[str, Any], leave_after: int | None = None) -> dict[str, Any]:
    """One stream. leave_after: close the connection after so many tokens. Times are seconds on this machine's
    monotonic clock, which all its processes share.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent_s = time.monotonic()
    writer.write(request(port, body))
    came: list[float] = []
    said = rest = b""
    try:
        while leave_after is None or len(came) < leave_after:
            part = await reader.read(1 << 16)
            if not part:
                break
            *lines, rest = (rest + part).split(b"\n")
            # One read may bring several tokens: they came at the same moment.
            came += [time.monotonic()] * sum(map(letters, lines))
            said = (said + part)[-2000:]
    except asyncio.CancelledError:
        pass  # enough was seen
    finally:
        writer.close()
    return {"sent_s": sent_s, "came": came, "last": said.decode(errors="replace")}


async def within(limit_s: float, *asked: Coroutine[Any, Any, dict[str, Any]]) -> list[dict[str, Any]]:
    """What has come of all of them by then."""
    tasks = [asyncio.ensure_future(one) for one in asked]
    await asyncio.wait(tasks, timeout=limit_s)
    for task in tasks:
        task.cancel()
    return list(await asyncio.gather(*tasks))


async def with_a_long_one(
    port: int, bodies: list[dict[str, Any]], long: dict[str, Any], after_s: float, limit_s: float
) -> list[dict[str, Any]]:
    """The others are left once the long one is done, which comes last in what is given back."""
    others = [asyncio.ensure_future(ask(port, body)) for body in bodies]
    await asyncio.sleep(after_s)
    [last] = await within(limit_s, ask(port, long))
    for one in others:
        one.cancel()
    return [*(await asyncio.gather(*others)), last]


async def leave(port: int, body: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Many that leave: some at once, some after a few pieces; 25 at a time."""
    for start in range(0, count, 25):
        await asyncio.gather(*(ask(port, body, number % 3) for number in range(start, start + 25)))
    return []


def main() -> None:
    for line in sys.stdin:
        wanted = json.loads(line)
        port, bodies = wanted["port"], wanted["bodies"]
        if wanted["what"] == "sleeping":
            print(json.dumps(sleeping(port, bodies, wanted["limit_s"])), flush=True)
            continue
        if wanted["what"] == "leave":
            work = leave(port, bodies[0], wanted["count"])
        elif wanted["what"] == "long":
            work = with_a_long_one(port, bodies[:-1], bodies[-1], wanted["after_s"], wanted["limit_s"])
        else:
            work = within(wanted["limit_s"], *(ask(port, body) for body in bodies))
        print(json.dumps(asyncio.run(work)), flush=True)


if __name__ == "__main__":
    main()
