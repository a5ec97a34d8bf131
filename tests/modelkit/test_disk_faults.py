"""What a file system refuses, as errors: which kind, of which file, and how much room there is."""

import errno
import os
import resource
from pathlib import Path

import pytest

from modelkit.disk_faults import disk_fault, require_room
from modelkit.errors import DiskDenied, DiskFull, StoreError
from modelkit.store.disk import hard_link, storing


def refused(number: int, *files: str) -> OSError:
    return OSError(number, os.strerror(number), *files)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        *[(number, DiskFull) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)],
        *[(number, DiskDenied) for number in (errno.EROFS, errno.EACCES, errno.EPERM)],
        (errno.EIO, StoreError),
    ],
)
@pytest.mark.parametrize("exported", [False, True])
def test_an_error_of_the_system_has_its_kind(number: int, kind: type[StoreError], exported: bool) -> None:
    with pytest.raises(StoreError) as found, storing(Path("x"), exported=exported):
        raise refused(number)
    assert type(found.value) is kind
    assert (found.value.hint is None) == (number == errno.EIO)


def test_a_full_disk_says_how_much_is_free(tmp_path: Path) -> None:
    fault = disk_fault(refused(errno.ENOSPC, str(tmp_path / "new" / "file")))
    assert fault.message.startswith(f"{tmp_path}/new/file: no space left on device; ")
    assert fault.message.endswith("B are free there")


def test_a_limit_of_files_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (512_000, resource.RLIM_INFINITY))
    assert disk_fault(refused(errno.EFBIG), Path("x")).message == "x: file too large; a file may have 512 kB"


def test_a_file_that_is_too_large_has_its_own_advice_wherever_it_is() -> None:
    found = disk_fault(refused(errno.EFBIG), Path("x"), hint="Take another cache.")
    assert "ulimit -f" in str(found.hint)


def test_of_two_files_the_one_that_is_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    with pytest.raises(StoreError, match=r"^\S*/new/name: no such file"), storing(tmp_path):
        hard_link(tmp_path / "there", tmp_path / "new" / "name")


def test_what_is_needed_and_what_is_free_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        DiskFull, match=r"(?s)1.15e.06 TB, .* fetched to \S+/new, where .*B are free\nMake some"
    ):
        require_room(tmp_path / "new", 1 << 60, "Make some.", verb="fetched")
