"""`python -m modelkit` is the `modelkit` command."""

from modelkit.cli.entry import main

main()
