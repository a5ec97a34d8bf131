"""Options that several commands have, and what they hand to the rooms below."""
