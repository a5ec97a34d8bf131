"""`/v1/messages` and `/v1/messages/count_tokens`."""

from functools import lru_cache, partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from modelkit.answers.streams import GenerationStream
from modelkit.errors import ModelkitError, PromptTooLong
from modelkit.model import Model
from modelkit.server.anthropic.blocks import Blocks
from modelkit.server.anthropic.compacting import Compaction
from modelkit.server.anthropic.names import model_for
from modelkit.server.anthropic.reading import MessagesRequest, read_messages_request
from modelkit.server.anthropic.signing import Sign, signer
from modelkit.server.anthropic.threads import Threads, threads_of
from modelkit.server.anthropic.writing import STATUSES, Messages, worded
from modelkit.server.ask import Ask
from modelkit.server.calling import call
from modelkit.server.dialect import Dialect
from modelkit.server.faults import refused, renamed
from modelkit.server.replying import naming, read, reply
from modelkit.server.serving import serving_of, trace_of
from modelkit.server.streaming import SSE

_NAMES = {
    "format": "output_config.format",
    "think": "thinking",
    "think_tokens": "thinking.budget_tokens",
    "stop": "stop_sequences",
    **{name: name for name in ("tools", "tool_choice", "messages")},
}
"""How this dialect calls our keywords."""


async def messages(request: Request) -> Response:
    threads = threads_of(request)
    asked = await read(request, lambda body: read_messages_request(body, threads))

    def start(model: Model, row: int) -> GenerationStream:
        return start_answer(model, asked)

    ask = Ask(await model_for(request, asked.model), start, keep_alive=asked.keep_alive)
    writer = _writer(request, asked, threads)
    return await reply(request, ask, writer, SSE, streamed=asked.stream, ignored=asked.ignored)


def _writer(request: Request, asked: MessagesRequest, threads: Threads) -> Messages:
    id = trace_of(request).id  # noqa: A001
    if asked.compacts:
        return Compaction(asked.model, id)
    blocks = Blocks(_signer(serving_of(request).settings.home), omitted=asked.omitted)
    keep = None if asked.thread is None else partial(threads.keep, asked.thread)
    return Messages(asked.model, blocks, id, silent=asked.warms, keep=keep)


async def count_tokens(request: Request) -> Response:
    """What the prompt would take, by the very way that answers it."""
    threads = threads_of(request)
    asked = await read(request, lambda body: read_messages_request(body, threads, counting=True))
    name = await model_for(request, asked.model)
    count = await call(request, name, lambda model: prompt_tokens(model, asked), asked.keep_alive)
    return naming(request, JSONResponse({"input_tokens": count}), asked.ignored)


def start_answer(model: Model, asked: MessagesRequest) -> GenerationStream:
    keywords = dict(asked.keywords)
    if asked.warms:
        keywords["num_predict"] = 1  # for none, nothing would be read
    if (think := think_of(model, asked)) is not None:
        keywords["think"] = think
    if not model.thinking.can:
        keywords.pop("think_tokens", None)
    try:
        stream = model.chat(asked.messages, stream=True, **keywords)
        if asked.think is not False and think is None:
            stream.note(f"{model.name} does not think when it is asked to: thinking was left out")
        return stream
    except PromptTooLong as error:
        # Claude Code looks for these words, and makes the conversation shorter.
        raise refused(
            "too_long", f"prompt is too long: {error.prompt_tokens} tokens > {error.context_tokens} maximum"
        ) from error
    except ModelkitError as error:
        raise renamed(error, _NAMES) or error from error


def think_of(model: Model, asked: MessagesRequest) -> bool | str | None:
    """What is asked of its thinking; None where the model has no choice. Agents ask every model for thinking,
    and a small one beside for none, whatever these can.
    """
    able = model.thinking
    can = able.off is not None if asked.think is False else able.on is not None
    return asked.think if can else None


def prompt_tokens(model: Model, asked: MessagesRequest) -> int:
    own = {name: asked.keywords[name] for name in ("tools", "continue_final") if name in asked.keywords}
    prompt = model.prompt(asked.messages, truncate=False, think=think_of(model, asked), **own)
    return len(model.encode(prompt, add_special=False))


@lru_cache(maxsize=16)
def _signer(home: Path) -> Sign:
    return signer(home)


DIALECT = Dialect(
    "anthropic",
    (
        Route("/v1/messages", messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
    ),
    ("/v1/messages",),
    worded,
    header="anthropic-version",
    statuses=STATUSES,
)
