"""`python -m modelkit` is the `modelkit` command."""

from modelkit.cli.start import main

main()
