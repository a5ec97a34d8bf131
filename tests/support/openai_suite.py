"""The official client's own tests of everything that is created, run against this server.

    git clone https://github.com/openai/openai-python
    OPENAI_PYTHON=openai-python python -m tests.support.openai_suite

They need what that repository's development group has (pytest-asyncio, aiohttp, inline-snapshot, ...):
OPENAI_PYTHON_BIN names a Python that has it, if this one has not. The tests send every parameter at once, and
check answers strictly. Left out of their requests is only what OpenAI keeps or runs (`PLUGIN`), and in their
strict cases vectors are asked for as numbers.
"""

import sys
from pathlib import Path

import modelkit
from tests.support.client_suite import Suite
from tests.support.tiny import TEMPLATE, write_model

FILES = (
    "chat/test_completions",
    "test_completions",
    "test_embeddings",
    "test_models",
    "test_responses",
    "responses/test_input_tokens",
    "beta/test_responses",
)
NAMES = (
    *("gpt-6-astra", "gpt-5.4", "gpt-5.1", "gpt-3.5-turbo-instruct", "text-embedding-3-small"),
    "model",
)
MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
TOOLS = "{% if tools %}<tools>{{ tools | tojson }}{% endif %}"

# Of a response: a conversation, an earlier response, a stored prompt, other agents.
PLUGIN = """
from openai.resources.beta.responses import AsyncResponses as AsyncBeta, Responses as Beta
from openai.resources.embeddings import AsyncEmbeddings, Embeddings
from openai.resources.responses import AsyncResponses, Responses
from openai.resources.responses.input_tokens import AsyncInputTokens, InputTokens

KEPT_ELSEWHERE = ("conversation", "multi_agent", "previous_response_id", "prompt")

def without(asked):
    def call(self, **given):
        return asked(self, **{name: one for name, one in given.items() if name not in KEPT_ELSEWHERE})
    return call

for kind in (Responses, AsyncResponses, Beta, AsyncBeta):
    kind.create = without(kind.create)
for kind in (InputTokens, AsyncInputTokens):
    kind.count = without(kind.count)

# The client asks for base64 by itself, and decodes it behind its strict check, which expects numbers.
for kind in (AsyncEmbeddings, Embeddings):
    def patch(create):
        def call(self, **given):
            if self._client._strict_response_validation:
                given.setdefault("encoding_format", "float")
            return create(self, **given)
        return call
    kind.create = patch(kind.create)
"""


def _create(home: Path, scratch: Path) -> None:
    """One package under all the names: it is one model in memory."""
    folder = write_model(_folder(scratch / "model"), template=TOOLS + TEMPLATE, max_position_embeddings=1024)
    _add_tokens(folder)
    recipe = scratch / "Modelfile"
    recipe.write_text(f"FROM {folder}\nPARAMETER num_predict 12\n", encoding="utf-8")
    modelkit.create(recipe, name=NAMES[0], home=home)
    for name in NAMES[1:]:
        modelkit.copy(NAMES[0], name, home=home)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _add_tokens(folder: Path) -> None:
    """Those that a gap is marked with, and one that a text begins with."""
    from tokenizers import Tokenizer, processors

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens([*MARKS, "<begin>"])
    begin = tokenizer.token_to_id("<begin>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<begin> $A", pair="<begin> $A $B", special_tokens=[("<begin>", begin)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))


SUITE = Suite(
    variable="OPENAI_PYTHON",
    repository="github.com/openai/openai-python",
    files=FILES,
    plugin=PLUGIN,
    model=NAMES[0],  # some name none, and may be the first to ask: then none is loaded that could be meant
    create=_create,
    url=lambda address: f"{address}/v1",
    arguments=("-k", "(create or count) and not stored"),
)

if __name__ == "__main__":
    sys.exit(SUITE.main())
