"""Debian's docker-registry on loopback, in a folder of its own: the protocol's reference implementation."""

import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

PROGRAM = "docker-registry"
installed = shutil.which(PROGRAM) is not None

_CONFIG = """version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {root}}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}", relativeurls: {relative}, secret: test}}
"""


class DebianRegistry:
    """A context manager; `stop` and `start` in between keep what is stored."""

    def __init__(self, folder: Path, *, relative: bool = False) -> None:
        self._folder = folder
        self._relative = relative
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        config = self._folder / "config.yml"
        root = self._folder / "data"
        root.mkdir(parents=True, exist_ok=True)
        config.write_text(_CONFIG.format(root=root, port=self.port, relative=str(self._relative).lower()))
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([PROGRAM, "serve", str(config)], stdout=log, stderr=log)
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://{self.host}/v2/", timeout=5).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise RuntimeError((self._folder / "log").read_text())

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
