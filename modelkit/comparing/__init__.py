"""Two models held against each other: their predictions of one text and their speed, or their vectors."""
