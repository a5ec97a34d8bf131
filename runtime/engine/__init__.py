"""Requests in, tokens out: many rows at once, on one thread that owns MLX.

For callers, on any thread:
    engine         submit, cancel, close; `options`: its settings
    request        what goes in and what comes out, as plain values
    stream         the caller's end of one request; `notifier` wakes its readers
    activity       what the engine is doing, for people who watch it
On the engine's thread:
    thread         the thread itself; `room`: what it builds around a model before it serves
    loop           requests get places, take steps, and end
    scheduler      what the next step does: a pure decision; `pace`: how much of a prompt it reads
    steps          forward passes over the rows that have places
    drawing        logits to tokens; `in_flight`: tokens that are drawn and not read back yet
    row            one sequence while it is worked on
    places         which row has which place in layer memory; `waiting`: how many have none yet
    prefixes       rows and the prefix cache; `fetching` reads pages from disk, on a thread of its own
    memory_limits  how rows and the prefix cache divide memory; `free_memory`: how much the machine has now
    sources        prompts that an encoder reads
    adapters       adapters of rows, loaded when one is first asked for
"""
