"""An official client's own tests, run against this server: each suite says which, and what is made for it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from modelkit.server.app import make_app
from modelkit.server.models.model_source import StoredModels
from modelkit.server.models.pool import Pool
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from runtime.records import dataclass
from tests.support.served import Quiet, listening


@dataclass(frozen=True, slots=True)
class Suite:
    """The tests of one client."""

    variable: str
    """Of the environment: where a checkout is; with _BIN behind it, a Python that has what they need."""
    repository: str
    files: tuple[str, ...]
    """Of tests/api_resources, without .py."""
    plugin: str
    """A module that pytest loads first: it leaves out of requests what nobody can do here."""
    model: str
    """What is asked where a request names none."""
    create: Callable[[Path, Path], None]
    """(home, scratch): makes the packages that the tests name."""
    url: Callable[[str], str] = str
    """Of an address, as the client wants it."""
    arguments: tuple[str, ...] = ()
    """Of pytest."""

    def main(self) -> int:
        checkout = os.environ.get(self.variable)
        if not checkout:
            sys.stderr.write(f"set {self.variable} to a checkout of {self.repository}\n")
            return 2
        return self.run(Path(checkout).resolve(), os.environ, sys.argv[1:])

    def run(self, checkout: Path, environment: Mapping[str, str], arguments: Sequence[str] = ()) -> int:
        """pytest's exit status."""
        with tempfile.TemporaryDirectory() as scratch:
            home, plugins = Path(scratch, "home"), Path(scratch, "plugins")
            self.create(home, Path(scratch))
            plugins.mkdir()
            (plugins / "left_out.py").write_text(self.plugin, encoding="utf-8")
            settings = Settings.from_environment({"MODELKIT_HOME": str(home)})
            serving = Serving(Pool(StoredModels(settings)), settings, default_model=self.model, log=Quiet())
            with listening(make_app(serving)) as address:
                found = {
                    **environment,
                    "TEST_API_BASE_URL": self.url(address),
                    "PYTHONPATH": os.pathsep.join([str(checkout / "src"), str(checkout), str(plugins)]),
                }
                python = environment.get(f"{self.variable}_BIN", sys.executable)
                argv = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "left_out"]
                paths = [str(Path("tests", "api_resources", f"{name}.py")) for name in self.files]
                whole = [*argv, *self.arguments, *paths, *arguments]
                return subprocess.run(whole, cwd=checkout, env=found, check=False).returncode
