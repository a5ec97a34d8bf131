"""What a model writes, told apart: thinking, text, and calls of tools.

    parting                     ids in, events out: what an answer's stream uses
    events, collected           the events; put together again
    pieces, stopping            ids -> text with its special tokens; stop strings
    splitter, splitting, headed what tells parts apart: for styles with marks, for messages with headers
    machine                     what both have in common
    calls, identities           calls of tools, and their ids
    sink, joining               neighbouring events of one kind as one event
    reading                     readers of the arguments of calls

Everything above (Python's streams, the conversation in the terminal, every HTTP dialect) only words events in
its own way.
"""
