"""Content-addressed packages on disk, in a form that registries and container tools understand.

`Store` is the door. A package is a tree of files; its identity is the digest of a manifest that lists them.

    name, digest, paths              names of models, content addresses, paths inside a package
    manifest, artifact, canonical    a package's two JSON documents, written in exactly one way
    package, outline, slices         a package, opened; one without its weights; parts of tensors for ranks
    store, layout, index             named packages on disk; the OCI image layout; its index.json
    transaction, ingest, partial     adding a package; its temporary files; blobs that come in pieces
    sweep, lock                      freeing blobs that nothing needs; locks between processes
    verify, soundness, memo          is every byte right; remembered digests of files
    export, disk                     a package as a folder of files; durable writes, cheap copies, room
"""

from modelkit.store.artifact import Artifact, build_artifact
from modelkit.store.digest import Blob, Digest
from modelkit.store.export import Exported
from modelkit.store.ingest import BlobWriter
from modelkit.store.name import Name, valid_name_from
from modelkit.store.package import BrokenPackage, Package
from modelkit.store.store import Pruned, Store
from modelkit.store.sweep import Freed
from modelkit.store.transaction import Transaction
from modelkit.store.verify import Problem, VerifyReport

__all__ = [
    "Artifact",
    "Blob",
    "BlobWriter",
    "BrokenPackage",
    "Digest",
    "Exported",
    "Freed",
    "Name",
    "Package",
    "Problem",
    "Pruned",
    "Store",
    "Transaction",
    "VerifyReport",
    "build_artifact",
    "valid_name_from",
]
