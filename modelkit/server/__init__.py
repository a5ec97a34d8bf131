"""HTTP: one pool of loaded models, and one dialect a folder. Imported by `modelkit serve` only.

    serve      all of it, from the first line to the last    app          the table of dialects
    serving    the one value that routes get                 dialect      routes, and how errors are worded
    ask        what is asked of a model                      active_request  it, from start to end
    replying   from a body to a response                     streaming    the same, one write per step
    calling    what is not a stream of events                fields       a body's fields, typed
    rows       several answers to one request                cost         what they cost together
    conversation  what all dialects do with one
    adapter_choice  adapters named with a model              logprobs     log-probabilities in OpenAI's words
    frames     JSON that is written many times               json_parts   large JSON, a part at a time
    faults     what an error means to a client               announce     how commands find the server
    trace      what is noted of a request                    log, metrics where that goes at its end
    models/    the loaded ones: names, leases, who stays     health       /livez, /health, /metrics
    access     pure decisions about Host, Origin and keys    limits       what one client may take
    extent     how much a JSON text holds                trimming     memory after large requests
    hints      fields that are for other machinery
    http/      sockets, connections, bodies; `gate` is what every request passes
    anthropic/, ollama/, openai/    the dialects of others    own/, page/  this server's own, and its page

How a dialect is made (a folder with a `DIALECT`, and its module's name in `app.ROOMS`):

    async def chat(request: Request) -> Response:
        asked = await read(request, read_chat)          # pure: `Fields` to keyword arguments
        ask = Ask(
            model=asked.model,                          # the pool finds it, or raises ModelNotFound
            # once for each row, in a worker thread
            start=lambda model, row: model.chat(asked.messages, stream=True, **asked.options),
            rows=asked.n,
            keep_alive=asked.keep_alive,                # seconds; negative: for ever; None: as set
        )
        return await reply(request, ask, Chunks(asked), SSE, streamed=asked.stream)      # or NDJSON

    DIALECT = Dialect("openai", (Route("/v1/chat/completions", chat, methods=["POST"]),), ("/v1",), word)

A handler raises what goes wrong: a ModelkitError, or `faults.refused(kind, message, field)`. The gate words
it with the dialect's `word(fault, request_id)`, sets the status and writes the log. Once bytes of a stream
are out, `Formatter.fail(fault)` is asked instead. `call(request, name, function)` runs anything else on a
model in a worker thread (tokenize, embed). `trace_of(request).id` is the request's id, `serving_of(request)`
the server.

A formatter (`streaming.Formatter`) has begin(started), batch(row, events), end(), fail(fault), all giving
bytes; a writer (`replying.Writer`) can give the answer in one, too. `started.model` and `started.streams` are
there from `begin` on. JSON in a stream is ASCII, so that no chunk ends within a character: `sse(value,
event)` and `ndjson(value)` of `streaming` do that.

Invariants: handlers never wait for the engine's thread, and whatever takes longer than a millisecond runs in
a worker thread. Whoever leaves cancels what runs for them, streamed or not. A model stays loaded while a
lease is held; the pool keeps no timeout and no task group open around it, as a lease may end in another task.
"""
