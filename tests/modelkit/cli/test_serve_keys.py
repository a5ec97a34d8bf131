"""`modelkit serve`: keys of clients, and the server's own with its certificate and password."""

import ssl
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from modelkit.cli.main import cli
from modelkit.cli.serve import KEY, PASSWORD
from modelkit.errors import ModelkitError
from modelkit.server.http.place import Place
from modelkit.settings.serving import key_password, server_key

Run = Callable[..., Result]
TLS = Path(__file__).parents[2] / "data" / "tls"


def test_a_certificate_that_is_none(run: Run, tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("nonsense", encoding="utf-8")
    result = run("serve", "--port", "0", "--ssl-certfile", str(tmp_path / "cert.pem"))
    assert (
        result.exit_code,
        "the certificate cannot be used: it, or its key, is not a PEM" in result.stderr,
    ) == (1, True)
    result = run("serve", "--port", "0", "--ssl-certfile", str(tmp_path / "none.pem"))
    assert f"the certificate cannot be used: No such file or directory: '{tmp_path}" in result.stderr


def test_the_key_comes_from_a_file_or_the_surroundings(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(" one \n", encoding="utf-8")
    assert KEY.convert(f"@{tmp_path / 'key'}", None, None) == "one"
    assert (server_key({"MODELKIT_API_KEY": " two "}), server_key({})) == ("two", None)


def test_a_key_that_no_client_could_send_is_refused(run: Run, tmp_path: Path) -> None:
    """A server would start with it, and nobody would ever get in."""
    (tmp_path / "keys").write_text("one\ntwo\n", encoding="utf-8")
    result = run("serve", "--port", "0", "--api-key", f"@{tmp_path / 'keys'}")
    assert (result.exit_code, "keys has several lines" in result.stderr) == (2, True)
    assert "two" not in result.stderr
    with pytest.raises(ModelkitError, match="MODELKIT_API_KEY has several lines") as error:
        server_key({"MODELKIT_API_KEY": "one\ntwo"})
    assert "two" not in str(error.value)


def test_a_key_without_end_is_refused_and_not_cut(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a" * 5000, encoding="utf-8")
    with pytest.raises(click.BadParameter, match="key cannot be read: it is larger than 4,096 bytes"):
        KEY.convert(f"@{tmp_path / 'key'}", None, None)


def test_a_password_keeps_its_blanks(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("a word \r\n", encoding="utf-8")
    assert PASSWORD.convert(f"@{tmp_path / 'word'}", None, None) == "a word "
    assert key_password({"MODELKIT_SSL_KEYFILE_PASSWORD": " two "}) == " two "
    assert key_password({}) is None


def test_a_locked_key_needs_its_password(run: Run, tmp_path: Path) -> None:
    """Without one nobody is asked at a terminal, and a wrong one is told from a wrong certificate."""
    files = "--ssl-certfile", str(TLS / "certificate.pem"), "--ssl-keyfile", str(TLS / "encrypted.pem")
    result = run("serve", "--port", "0", *files)
    assert result.exit_code == 1
    assert "encrypted.pem is encrypted" in result.stderr
    assert "--ssl-keyfile-password @FILE" in result.stderr
    (tmp_path / "word").write_text("no word\n", encoding="utf-8")
    result = run("serve", "--port", "0", *files, "--ssl-keyfile-password", f"@{tmp_path / 'word'}")
    assert result.exit_code == 1
    assert "Is that the password of its key?" in result.stderr
    assert "no word" not in result.stderr
    result = run("serve", "--ssl-keyfile-password", f"@{tmp_path / 'word'}")
    assert (result.exit_code, "--ssl-certfile is missing" in result.stderr) == (2, True)


def test_the_password_of_a_key_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the options say is what opens the key."""
    (tmp_path / "word").write_text("a word \n", encoding="utf-8")
    files = ["--ssl-certfile", str(TLS / "certificate.pem"), "--ssl-keyfile", str(TLS / "encrypted.pem")]
    seen: list[Place] = []
    monkeypatch.setattr("modelkit.server.serve.serve", lambda wanted, *_: seen.append(wanted.place))
    given = [["--ssl-keyfile-password", f"@{tmp_path / 'word'}"], []]
    for options, variable in zip(given, ("", "a word "), strict=True):
        monkeypatch.setenv("MODELKIT_SSL_KEYFILE_PASSWORD", variable)
        done = CliRunner().invoke(cli, ["serve", *files, *options])
        assert done.exit_code == 0, done.output
    assert len(seen) == 2
    for place in seen:
        assert "a word" not in repr(place)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(place.certificate or "", place.key, place.password)
