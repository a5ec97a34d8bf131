"""`python -m modelkit` is the `modelkit` command."""

from modelkit.cli.main import main

main()
