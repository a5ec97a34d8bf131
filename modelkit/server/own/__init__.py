"""What this server says in its own words, to its own page and its own command line."""
