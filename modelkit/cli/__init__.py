"""The `modelkit` command: a file for each command, named as the command is.

`copy` is `cp` and `remove` is `rm`; `quality` and `hosts` are options of `show` and `doctor`. Beside them:

    start, entry, main      from the first import to the table of commands
    frame, suggest          help pages; commands and options that do not exist
    completing              completion by the shell
    home, served            the store and the running server, as commands open them
    answer                  why an answer ended and what it cost
    early_exit              how an interrupted command ends
    options                 options that several commands have
    terminal                what a person sees, and how typed lines are read
    repl                    the conversation of `run`
"""
