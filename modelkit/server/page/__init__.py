"""The web page at `/`: files that are handed out as they are, and one rule about who gets them."""
