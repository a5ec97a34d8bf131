"""Anthropic's Messages interface, as its SDK and Claude Code know it.

messages        content blocks to a conversation
reading         a request's JSON to what a model is asked
blocks          events to content blocks that begin, grow and end
writing         blocks to server-sent events, or to one message
signing         the signature of what was thought
declared_tools  the tools of a request; `invalid_arguments`: arguments of calls that are no JSON
compacting      a conversation made short
threads         conversations that clients leave here between turns
names           `claude-...` to a model that is here
answers         the routes
"""
