"""Packages in OCI registries: fetched, sent, and who may.

    url, sockets, wire  HTTP with bounds: addresses, time, size; one request, one answer
    challenge, tokens   what a registry asks for before it answers, and the answer to that
    credentials, programs  where names and passwords are kept; login checks one, and keeps it
    client              calls: log in, follow, repeat; manifests: the small documents
    blobs               one request for a blob or a part of it; ranges: its bytes as they come
    download            one blob, in ranges, kept where it is when the process dies
    upload, session     one blob, in chunks, taken up again where the registry has it; push_cache: where
    kinds, archive, unpack  what layers of others are; files out of a tar
    run_settings        what configs of others set
    pull, gguf, push    whole packages; outline: all of one but its weights; early_check: judged from headers
    source, origin      where a package comes from, and where a stored one can be had again
    parallel            several requests at a time

Everything from a registry is a stranger's: bounded and checked before it is used, and no blob counts before
its own SHA-256 over the bytes on disk does. httpcore2, which httpx2 and so huggingface_hub stand on, carries
the requests: it follows no redirect, keeps no cookie and unpacks nothing by itself, and lets us say which
address a name may stand for.
"""
