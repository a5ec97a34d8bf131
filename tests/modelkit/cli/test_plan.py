"""`modelkit plan`: the table of shares, from headers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from modelkit.cli.options.machines import plan_heading, plan_table
from modelkit.showing.planning import Planned
from runtime.ranks.plan import Plan, Share

Run = Callable[..., Result]
Create = Callable[..., None]


@pytest.fixture
def story(created: Create) -> str:
    created("story", "PARAMETER num_ctx 100")
    return "story"


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    """Two machines, of which the second does not say its memory."""
    path = tmp_path / "hosts.json"
    path.write_text('[{"ssh": "mac-1", "ips": ["10.0.0.1"], "memory": "2GB"}, {"ssh": "mac-2"}]')
    return path


def test_stages_for_machines_of_a_file(modelkit: Run, story: str, hosts: Path) -> None:
    lines = modelkit("plan", story, "--hosts", str(hosts), "--memory", "1GB").stdout.splitlines()
    assert lines[0].split() == ["RANK", "HOST", "LAYERS", "WEIGHTS", "MEMORY", "ROOM", "FULL"]
    assert lines[1].split()[:3] == ["0", "mac-1", "0"]
    assert lines[2].split()[:3] == ["1", "mac-2", "1"]
    assert "2 GB" in lines[1]
    assert "1 GB" in lines[2]
    assert lines[4].endswith("2 layers, 2 stages; 1 sequence of 100 tokens; the bits of one machine")


def test_the_parts_of_a_plan_are_those_of_the_whole(modelkit: Run, story: str) -> None:
    def shares(*arguments: str) -> list[dict[str, int]]:
        return json.loads(modelkit("plan", story, *arguments, "--json").stdout)["shares"]

    (whole,) = shares("--ranks", "1")
    stages, shards = shares("--ranks", "2"), shares("--ranks", "2", "--shards", "2")
    assert sum(one["weight_bytes"] for one in stages) == whole["weight_bytes"]
    assert sum(one["memory_bytes"] for one in stages) == whole["memory_bytes"]
    assert all(one["weight_bytes"] < whole["weight_bytes"] for one in shards)
    assert [one["shard"] for one in shards] == [0, 1]


def test_context_and_sequences_count(modelkit: Run, story: str) -> None:
    def memory(*arguments: str) -> int:
        said = json.loads(modelkit("plan", story, "--ranks", "1", "--json", *arguments).stdout)
        return said["shares"][0]["memory_bytes"]

    assert memory("--sequences", "3") == 3 * memory()
    assert 2 * memory("--context", "50") == memory()


def test_a_context_that_the_model_does_not_have_is_a_note(modelkit: Run, story: str) -> None:
    ran = modelkit("plan", story, "--ranks", "1", "--context", "99999", "--json")
    most = json.loads(ran.stdout)["tokens"]
    assert f"note: a context of 99,999 tokens is more than the model's {most:,}\n" in ran.stderr
    assert "note" not in modelkit("plan", story, "--ranks", "1", "--context", str(most)).stderr


def test_show_has_the_plan_too(modelkit: Run, story: str) -> None:
    machines = (story, "--ranks", "2", "--memory", "1GB")
    plan = json.loads(modelkit("plan", *machines, "--json").stdout)
    assert json.loads(modelkit("show", *machines, "--json").stdout)["plan"].items() <= plan.items()
    assert "Machines (LlamaForCausalLM: 2 layers, 2 stages" in modelkit("show", *machines).stdout
    assert "give the machines" in modelkit("show", story, "--shards", "2").stderr


def test_too_little_room_is_a_note(modelkit: Run, story: str) -> None:
    found = modelkit("plan", story, "--ranks", "2", "--memory", "1kB")
    assert found.exit_code == 0
    assert "rank 0 wants" in found.stderr
    assert not json.loads(modelkit("plan", story, "--ranks", "2", "--memory", "1kB", "--json").stdout)["fits"]


def test_long_names_of_machines_leave_room_for_the_rest() -> None:
    """As those of a cloud; in a pipe they are whole."""
    names = [f"ip-10-0-12-{rank}.us-west-2.compute.internal" for rank in range(2)]
    shares = [
        Share(name, 0, 126, rank, 404 * 10**9, 17 * 10**9, 512 * 10**9) for rank, name in enumerate(names)
    ]
    found = Planned(Plan("LlamaForCausalLM", 126, 2, tuple(shares)), 4096, 1, ())
    narrow = plan_table(found, 80)
    assert max(map(len, narrow.splitlines())) == 80
    assert "ip-10-0-12-1.us-west-2" in narrow
    assert names[1] in plan_table(found)


def test_layers_of_an_encoder_have_a_column() -> None:
    shares = Share("a", 0, 12, 0, 7, 2, 0, reads=(0, 1)), Share("b", 12, 24, 0, 7, 2, 0, reads=(1, 24))
    found = Planned(Plan("T5", 24, 1, shares, 24), 512, 1, ())
    header, first, second, *_ = plan_table(found).splitlines()
    assert header.split()[:5] == ["RANK", "HOST", "LAYERS", "ENCODER", "WEIGHTS"]
    assert (first.split()[:4], second.split()[:4]) == (["0", "a", "0-11", "0"], ["1", "b", "12-23", "1-23"])
    assert plan_heading(found).startswith("T5: 24 layers and 24 of its encoder, 2 stages; ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give the machines"),
        (("--ranks", "9"), "too few for 9 stages"),
        (("--ranks", "3", "--shards", "2"), "not a multiple of 2 shards"),
    ],
)
def test_what_cannot_be_is_refused(modelkit: Run, story: str, arguments: tuple[str, ...], said: str) -> None:
    found = modelkit("plan", story, *arguments)
    assert found.exit_code in (1, 2)
    assert said in found.stderr


def test_a_machine_that_is_listed_twice_has_its_memory_once(modelkit: Run, story: str, hosts: Path) -> None:
    hosts.write_text('[{"ssh": "a", "memory": "2GB"}, {"ssh": "a"}]')
    for more in ((), ("--memory", "3GB")):
        found = modelkit("plan", story, "--hosts", str(hosts), "--json", *more).stdout
        assert [one["free_bytes"] for one in json.loads(found)["shares"]] == [10**9] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "should list 1 to 1024 machines"),
        ('{"hosts": [{"ips": []}]}', "expected an object with its name under ssh"),
        ('[{"ssh": "a", "memory": "much"}]', "expected a number of bytes"),
        ('[{"ssh": "a", "memory": "1GB"}, {"ssh": "b", "memory": 0}]', "machine 1 has no memory"),
        ('[{"ssh": "a", "memory": "1GB"}, {"ssh": "a", "memory": "2GB"}]', "with two sizes of memory"),
    ],
)
def test_a_bad_file_of_machines_is_refused(
    modelkit: Run, story: str, hosts: Path, text: str, said: str
) -> None:
    hosts.write_text(text)
    found = modelkit("plan", story, "--hosts", str(hosts))
    assert found.exit_code == 1
    assert said in found.stderr
