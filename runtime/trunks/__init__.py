"""Networks that families fill: trunks, what stands on them, and parts of them that many families share."""
