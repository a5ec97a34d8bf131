"""Packages in OCI registries: fetched, sent, and who may.

    wire            HTTP with bounds: time, size, redirects, which addresses may be connected to
    challenge       what a registry asks for before it answers; credentials: what is kept for it
    access          answers to that: Basic, or a token for what is to be done
    client          the calls of the distribution specification, as methods
    download        one blob, in ranges, kept where it is when the process dies
    upload          one blob, in chunks, taken up again where the registry has it
    kinds, archive  what a manifest of others says its layers are; files out of a tar
    pull, push      whole packages; login: checks and keeps a password

Everything from a registry is a stranger's: bounded and checked before it is used, and no blob counts before
its own SHA-256 over the bytes on disk does. httpcore2, which httpx2 and so huggingface_hub stand on, carries
the requests: it follows no redirect, keeps no cookie and unpacks nothing by itself, and lets us say which
address a name may stand for.
"""
