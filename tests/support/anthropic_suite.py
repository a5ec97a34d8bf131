"""Anthropic's own tests of its client, for messages and models, run against this server.

    git clone https://github.com/anthropics/anthropic-sdk-python
    ANTHROPIC_PYTHON=anthropic-sdk-python python -m tests.support.anthropic_suite

They need what that repository's development group has (pytest-asyncio, aiohttp, http-snapshot, ...):
ANTHROPIC_PYTHON_BIN names a Python that has it, if this one has not. The tests send every parameter at once,
and check answers strictly. Left out are batches of messages, which this server does not keep,
`/v1/complete` of the time before messages, and in the beta's requests the servers that Anthropic would call
(`PLUGIN`).
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import modelkit
from modelkit.server.app import make_app
from modelkit.server.models.pool import Pool
from modelkit.server.models.stored import Stored
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from tests.support.served import Quiet, listening
from tests.support.tiny import TEMPLATE, write_model

FILES = ("test_messages", "test_models", "beta/test_messages", "beta/test_models")
TOOLS = "{% if tools %}<tools>{{ tools | tojson }}{% endif %}"

# `mcp_servers` is refused by name: this server calls no other.
PLUGIN = """
from anthropic.resources.beta.messages import AsyncMessages, Messages

for kind in (Messages, AsyncMessages):
    for name in ("create", "count_tokens"):
        def patch(method):
            def call(self, **given):
                given.pop("mcp_servers", None)
                return method(self, **given)
            return call
        setattr(kind, name, patch(getattr(kind, name)))
"""


def main() -> int:
    checkout = os.environ.get("ANTHROPIC_PYTHON")
    if not checkout:
        sys.stderr.write("set ANTHROPIC_PYTHON to a checkout of github.com/anthropics/anthropic-sdk-python\n")
        return 2
    return run(Path(checkout).resolve(), os.environ, sys.argv[1:])


def run(checkout: Path, environment: Mapping[str, str], arguments: Sequence[str] = ()) -> int:
    """pytest's exit status."""
    with tempfile.TemporaryDirectory() as scratch:
        home, plugins = Path(scratch, "home"), Path(scratch, "plugins")
        _create(home, Path(scratch))
        plugins.mkdir()
        (plugins / "calls_nobody.py").write_text(PLUGIN, encoding="utf-8")
        settings = Settings.from_environment({"MODELKIT_HOME": str(home)})
        serving = Serving(Pool(Stored(settings)), settings, default_model="model_id", log=Quiet())
        paths = [str(Path("tests", "api_resources", f"{name}.py")) for name in FILES]
        with listening(make_app(serving)) as address:
            found = {
                **environment,
                "TEST_API_BASE_URL": address,
                "PYTHONPATH": os.pathsep.join([str(checkout / "src"), str(checkout), str(plugins)]),
            }
            python = environment.get("ANTHROPIC_PYTHON_BIN", sys.executable)
            argv = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "calls_nobody"]
            whole = [*argv, *paths, *arguments]
            return subprocess.run(whole, cwd=checkout, env=found, check=False).returncode


def _create(home: Path, scratch: Path) -> None:
    """One package, under the name that the tests of models ask for."""
    folder = scratch / "model"
    folder.mkdir()
    write_model(folder, template=TOOLS + TEMPLATE, max_position_embeddings=4096)
    recipe = scratch / "Modelfile"
    recipe.write_text(f"FROM {folder}\n", encoding="utf-8")
    modelkit.create(recipe, name="model_id", home=home)


if __name__ == "__main__":
    sys.exit(main())
