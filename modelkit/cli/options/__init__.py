"""Options that several commands have, and what they hand to the rooms below.

adapters           --adapter, --no-adapters
forms              --format, --grammar: what an answer shall look like
limits             how much is kept of earlier prompts
prompts            the prompt of `run`, from arguments and standard input
settings           -p NAME=VALUE
ranks, machines    several machines: options, and the table of what each would have
"""
