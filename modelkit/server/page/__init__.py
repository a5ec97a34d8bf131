"""The web page at `/`: `files` are handed out as they are; `routes` decide who gets the page."""
