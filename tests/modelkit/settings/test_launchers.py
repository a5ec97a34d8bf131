"""What launchers say of a process, as MLX can read it."""

from pathlib import Path

import pytest

from modelkit.errors import ParameterError
from modelkit.settings.launchers import check_launched, launched, one_of_several


@pytest.mark.parametrize(
    ("given", "several"),
    [
        ({}, False),
        ({"MLX_RANK": "0"}, True),
        ({"MLX_RANK": "0", "MLX_HOSTFILE": "two.json"}, True),
        ({"MLX_RANK": "0", "MLX_HOSTFILE": "blank.json"}, False),
        ({"MLX_RANK": "0", "MLX_HOSTFILE": "none.json"}, True),
        ({"MLX_RANK": "0", "MLX_HOSTFILE": "one.json"}, False),
        ({"MLX_RANK": "0", "MLX_WORLD_SIZE": "1"}, False),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, True),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, False),
    ],
)
def test_a_launcher_of_one_process_starts_none_of_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], *, several: bool
) -> None:
    """Of one machine `mlx.launch` writes no addresses; it holds the input of that, too."""
    monkeypatch.chdir(tmp_path)
    Path("two.json").write_text('[["127.0.0.1:5000"], ["127.0.0.1:5001"]]')
    Path("blank.json").write_text("\n")
    Path("one.json").write_text('[["127.0.0.1:5000"]]')
    assert one_of_several(given) == several
    assert launched(given) == bool(given)


@pytest.mark.parametrize("rank", ["-1", "2", "99999999999", "one", "", "1.0", "\u0660"])
def test_a_rank_that_mlx_would_misread(tmp_path: Path, rank: str) -> None:
    """-1 ended the process with a bus error, and a word was rank 0."""
    hosts = tmp_path / "hosts.json"
    hosts.write_text('[["127.0.0.1:5000"], ["127.0.0.1:5001"]]')
    check_launched({"MLX_RANK": "1", "MLX_HOSTFILE": str(hosts)})
    with pytest.raises(ParameterError, match=f"MLX_RANK is '{rank}', expected one of the 2 ranks of"):
        check_launched({"MLX_RANK": rank, "MLX_HOSTFILE": str(hosts)})


def test_a_rank_of_another_backend() -> None:
    check_launched({})
    check_launched({"MLX_RANK": "3"})
    with pytest.raises(ParameterError, match="MLX_RANK is '-1', expected a whole number"):
        check_launched({"MLX_RANK": "-1"})


@pytest.mark.parametrize("text", ["[]", "null", '{"a": 1}', "[[1], [2]]", '["127.0.0.1:5000", "b:1"]', "[["])
def test_addresses_that_mlx_would_misread(tmp_path: Path, text: str) -> None:
    """Of an empty list it divided by zero."""
    hosts = tmp_path / "hosts.json"
    hosts.write_text(text)
    given = {"MLX_RANK": "0", "MLX_HOSTFILE": str(hosts)}
    with pytest.raises(ParameterError, match="expected a list of addresses for each rank"):
        check_launched(given)
    assert one_of_several(given)
    hosts.unlink()
    with pytest.raises(ParameterError, match="cannot be read: no such file"):
        check_launched(given)
