"""Content-addressed packages on disk, in a form that registries and container tools understand.

`Store` is the door. A package is a tree of files; its identity is the digest of a manifest that lists them.
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
