"""What a model writes, told apart: thinking, text, and calls of tools.

    answer_parser        ids in, events out: what an answer's stream uses
    events, collected    the events; put together again
    pieces, stop_filter  ids -> text with its special tokens; stop strings
    splitter, text_splitter, header_splitter  tell parts apart: by marks, by headers of messages
    machine              what both have in common
    calls, call_ids      calls of tools, and their ids
    sink, joining        neighbouring events of one kind as one event
    reading              readers of the arguments of calls

Everything above (Python's streams, the conversation in the terminal, every HTTP dialect) only words events in
its own way.
"""
