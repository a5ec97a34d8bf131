"""What a model answers.

generation    the answer as a value, its last event, and what is known before it begins
streams       an answer while it is generated
waker         how the readers of an event loop are woken: once per step for all of them
room          how many tokens an answer may have
"""
