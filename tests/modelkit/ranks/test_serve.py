"""`modelkit serve --ranks 2`: the answers of one machine, one model at a time, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import modelkit
from tests.support.ranks import ROOT, environments, free_ports
from tests.support.tiny import write_model

TEXTS = ["Once upon a time", "rain"]
OPTIONS = {"temperature": 0.6, "seed": 3, "num_predict": 5}


def ask(address: str, model: str, path: str = "/api/generate", **body: Any) -> dict[str, Any]:
    said = {"model": model, "prompt": "Once", "stream": False, "options": OPTIONS, **body}
    request = urllib.request.Request(address + path, json.dumps(said).encode())
    try:
        with urllib.request.urlopen(request, timeout=100) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return {"status": error.code, **json.loads(error.read())}


def reached(address: str, process: "subprocess.Popen[bytes]") -> bool:
    until_s = time.monotonic() + 240
    while time.monotonic() < until_s and process.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return True
        except OSError:
            time.sleep(0.1)
    return False


def health(address: str) -> tuple[int, Any]:
    """What it says once it is no longer well, or after some seconds."""
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{address}/health", timeout=5).close()
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())
        time.sleep(0.1)
    return 200, None


NOTING = """
import runpy, sys
from modelkit.ranks.spawn import Children
begun, path = Children.__init__, sys.argv.pop(1)
def begin(self, *given):
    begun(self, *given)
    open(path, "w").write(str(self._processes[0].pid))
Children.__init__ = begin
runpy.run_module("modelkit", run_name="__main__")
"""
"""`modelkit`, which writes down what process is rank 1."""


def test_a_server_whose_rank_was_killed_says_so(tmp_path: Path) -> None:
    """To who asks a model, and to who asks whether one should."""
    home, log, (port,) = tmp_path / "home", tmp_path / "log", free_ports(1)
    write_model(tmp_path / "model", num_hidden_layers=4)
    (tmp_path / "Modelfile").write_text(f"FROM {tmp_path / 'model'}\n")
    modelkit.create(tmp_path / "Modelfile", name="story", home=home)
    address = f"http://127.0.0.1:{port}"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                NOTING,
                str(tmp_path / "pid"),
                "serve",
                "story",
                "--ranks",
                "2",
                "--port",
                str(port),
            ],
            env=os.environ | {"PYTHONPATH": str(ROOT), "MODELKIT_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        assert reached(f"{address}/health", process), log.read_text()
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        assert health(address) == (503, {"status": "ranks lost"})  # before anybody has asked a model
        refused = ask(address, "story")
        assert "the process of rank 1 ended with code -9" in refused["error"]
        assert ask(address, "story")["status"] == 503
        assert " error=ranks_lost" in log.read_text()
        assert health(address) == (503, {"status": "ranks lost"})
    finally:
        process.kill()
        process.wait()


def test_a_server_of_two_ranks(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name, layers in (("story", 4), ("other", 2)):
        write_model(tmp_path / name, num_hidden_layers=layers)
        (tmp_path / f"{name}.mf").write_text(f"FROM {tmp_path / name}\n")
        modelkit.create(tmp_path / f"{name}.mf", name=name, home=home)
    with modelkit.load("story", home=home) as alone:
        expected = alone.generate("Once", **OPTIONS).text  # pyright: ignore[reportArgumentType]
        vectors = alone.embed(TEXTS).vectors.tolist()
    (port,), log = free_ports(1), tmp_path / "log"
    address = f"http://127.0.0.1:{port}"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "modelkit", "serve", "story", "--ranks", "2", "--port", str(port)],
            env=os.environ | {"PYTHONPATH": str(ROOT), "MODELKIT_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        assert reached(address, process), log.read_text()
        assert ask(address, "story")["response"] == expected
        assert ask(address, "story", "/api/embed", input=TEXTS)["embeddings"] == vectors
        refused = ask(address, "other")
        assert refused["status"] == 503
        assert "run one at a time" in refused["error"]
        ask(address, "story", prompt="", keep_alive=0)  # leaves
        assert ask(address, "other")["response"]
        process.send_signal(signal.SIGINT)
        assert process.wait(100) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def test_a_server_ends_with_the_launcher_that_was_killed(tmp_path: Path) -> None:
    """Which has held a pipe to the input of each rank, and can end none of them."""
    (port,), log = free_ports(1), tmp_path / "log"
    command = [sys.executable, "-m", "modelkit", "serve", "--port", str(port)]
    read, write = os.pipe()
    with log.open("wb") as file:
        started = [
            subprocess.Popen(
                command,
                env=env | {"MODELKIT_HOME": str(tmp_path / "home")},
                stdin=read,
                stdout=file,
                stderr=file,
            )
            for env in environments(tmp_path, 2)
        ]
    os.close(read)
    try:
        assert reached(f"http://127.0.0.1:{port}", started[0]), log.read_text()
        os.close(write)
        assert [process.wait(60) for process in started] == [0, 0]
        assert "draining" in log.read_text()
    finally:
        for process in started:
            process.kill()
            process.wait()
