"""Running one model on several machines: who takes part, what they agree on, and the processes themselves.

spawn        starts such processes on this machine
facts        what ranks tell each other about themselves, and where they differ
examining    which packages each has, and how fast links are
crew         the ranks that this process is one of: it leads them, or follows
"""
