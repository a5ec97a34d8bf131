"""`modelkit serve`: the address or the socket that it listens on, and why it cannot."""

import errno
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from modelkit.errors import ModelkitError
from modelkit.server.announce import announce, withdraw
from modelkit.server.http.place import Place, address_of, listen
from modelkit.settings.serving import server_address

Run = Callable[..., Result]


def test_a_port_in_use(run: Run) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        result = run("serve", "--port", str(other.getsockname()[1]))
    assert result.exit_code == 1
    assert "cannot listen on 127.0.0.1" in result.stderr
    assert "--port" in result.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (socket.gaierror(-2, "Name or service not known"), "The port goes to --port"),
        (UnicodeError("label empty or too long"), "The port goes to --port"),
        (OSError(errno.EADDRNOTAVAIL, "Cannot assign"), "--host takes an address of this machine"),
        (OSError(errno.EACCES, "Permission denied"), "--port takes a higher number"),
        (OSError(errno.EADDRINUSE, "Address already in use"), "Another server may be there"),
    ],
)
def test_why_it_cannot_listen_says_what_to_do(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr("modelkit.server.http.place.socket.getaddrinfo", refuse)
    with pytest.raises(ModelkitError, match=f"cannot listen on x:1(.|\n)*{said}"):
        listen(Place("x", 1))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", ("127.0.0.1", 11434)),
        ("0.0.0.0", ("0.0.0.0", 11434)),
        ("studio:8080", ("studio", 8080)),
        ("http://studio:8080/", ("studio", 8080)),
        ("[::1]:5", ("::1", 5)),
        ("a b", None),
        ("x:99999", None),
        ("studio:", None),
        ("a.b.:1", ("a.b.", 1)),
        ("a..b", None),
        ("a" * 64, None),
    ],
)
def test_the_surroundings_say_where(text: str, place: tuple[str, int] | None) -> None:
    from modelkit.errors import ParameterError

    if place is None:
        with pytest.raises(ParameterError, match="MODELKIT_HOST"):
            server_address({"MODELKIT_HOST": text})
    else:
        assert server_address({"MODELKIT_HOST": text}) == place


def test_two_servers_of_one_home(tmp_path: Path) -> None:
    """The file is that of the first that runs, and only its owner removes it."""
    path = announce(tmp_path, "http://127.0.0.1:1")
    assert path is not None
    with socket.create_server(("127.0.0.1", 0)) as other, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "socket"))
        local.listen()
        for url in (f"http://127.0.0.1:{other.getsockname()[1]}", f"unix:{tmp_path / 'socket'}"):
            path.write_text(json.dumps({"pid": os.getppid(), "url": url}), encoding="utf-8")
            assert announce(tmp_path, "http://127.0.0.1:3") is None
            withdraw(path)
            assert path.exists()
    # A server that was killed has left the file, and its number is another program's by now.
    numbers = [
        json.dumps({"pid": os.getppid(), "url": one}) for one in (url, "http://[::1]:1", "http://x:99999")
    ]
    ours = json.dumps({"pid": os.getppid(), "url": "http://127.0.0.1:4"})
    for left_over in (*numbers, ours, '{"pid": 999999999, "url": ""}', "nonsense", "[]", '{"pid": true}'):
        path.write_text(left_over, encoding="utf-8")
        assert announce(tmp_path, "http://127.0.0.1:4") == path
        assert json.loads(path.read_text(encoding="utf-8"))["pid"] == os.getpid()
    withdraw(path)
    assert not path.exists()


def test_a_socket_that_is_left_over_is_taken_again(tmp_path: Path) -> None:
    place = Place(uds=tmp_path / "socket")
    (first,) = listen(place)
    with pytest.raises(ModelkitError, match="another server"):
        listen(place)
    first.close()
    (second,) = listen(place)
    assert address_of(second, place) == f"unix:{tmp_path / 'socket'}"
    second.close()


def test_a_file_is_no_socket_that_was_left_over(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("of somebody", encoding="utf-8")
    result = run("serve", "--uds", str(file))
    assert (result.exit_code, "a file is there" in result.stderr) == (1, True)
    assert file.read_text(encoding="utf-8") == "of somebody"


def test_a_place_where_no_socket_can_be_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ModelkitError, match="cannot listen on"):
        listen(Place(uds=tmp_path / "folder"))
    assert {one.name for one in tmp_path.iterdir()} == {"folder", "link"}


def test_localhost_is_both_loopback_addresses() -> None:
    listeners = listen(Place("localhost", 0))
    assert {one.getsockname()[1] for one in listeners} == {listeners[0].getsockname()[1]}
    for one in listeners:
        one.close()
