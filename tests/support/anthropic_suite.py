"""Anthropic's own tests of its client, for messages and models, run against this server.

    git clone https://github.com/anthropics/anthropic-sdk-python
    ANTHROPIC_PYTHON=anthropic-sdk-python python -m tests.support.anthropic_suite

They need what that repository's development group has (pytest-asyncio, aiohttp, http-snapshot, ...):
ANTHROPIC_PYTHON_BIN names a Python that has it, if this one has not. The tests send every parameter at once,
and check answers strictly. Left out are batches of messages, which this server does not keep,
`/v1/complete` of the time before messages, and in the beta's requests the servers that Anthropic would call
(`PLUGIN`).
"""

import sys
from pathlib import Path

import modelkit
from tests.support.client_suite import Suite
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


def _create(home: Path, scratch: Path) -> None:
    """One package, under the name that the tests of models ask for."""
    folder = scratch / "model"
    folder.mkdir()
    write_model(folder, template=TOOLS + TEMPLATE, max_position_embeddings=4096)
    recipe = scratch / "Modelfile"
    recipe.write_text(f"FROM {folder}\n", encoding="utf-8")
    modelkit.create(recipe, name="model_id", home=home)


SUITE = Suite(
    variable="ANTHROPIC_PYTHON",
    repository="github.com/anthropics/anthropic-sdk-python",
    files=FILES,
    plugin=PLUGIN,
    model="model_id",
    create=_create,
)

if __name__ == "__main__":
    sys.exit(SUITE.main())
