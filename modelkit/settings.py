"""Environment and folders, read once into a frozen value. No other room reads os.environ."""

import json
import os
import pwd
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast, get_args
from urllib.parse import urlsplit

from modelkit.arguments import absolute, as_whole, path, shown
from modelkit.durations import read_keep_alive
from modelkit.errors import ModelkitError, ParameterError
from runtime.records import dataclass

Operations = Literal["plain", "cpu", "blas", "gpu"]

_KERNELS = {
    "MODELKIT_KERNELS": ("off", "required", "plain", "avx2", "avx512", "neon"),
    "MODELKIT_KERNELS_ACTIVATIONS": ("i16", "f32"),
}
_SIZE = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,12}))? ?(?:([KMGT])(I)?)?B?")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{([^}]*)\})", re.ASCII)
_MOST_BYTES = 2**63
_SMALL = 1 << 20
_RANKS = ("MLX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")  # of mlx.launch, Open MPI, MPICH
_SIZES = ("MLX_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
LAUNCHERS = (*_RANKS, *_SIZES, "MLX_HOSTFILE", "MLX_IBV_DEVICES", "MLX_JACCL_COORDINATOR", "NCCL_HOST_IP")
"""What launchers set."""
_NUMBER = re.compile(r"[0-9]{1,9}")
_LAUNCHED = "`mlx.launch --hostfile` sets both on each machine."
_HUB = "https://huggingface.co"
SERVER_HOST, SERVER_PORT = "127.0.0.1", 11434
_SERVER = re.compile(
    r"(?:https?://)?(?:\[([0-9A-Fa-f:.]{2,45})\]|((?:[\w-]{1,63}\.)*[\w-]{1,63}\.?))(?::([0-9]{1,5}))?/?",
    re.ASCII,
)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the surroundings decide."""

    home: Path
    """Holds the store and modelkit's own state: MODELKIT_HOME, else ~/.modelkit."""
    cache_memory_bytes: int | None = None
    """Limit of what is kept of earlier prompts while a model is loaded: MODELKIT_CACHE_MEMORY, such as 2GB.
    0 keeps nothing, None leaves it to the memory that is there.
    """
    cache_disk_bytes: int = 0
    """Limit of what is kept of them on disk, of all models together: MODELKIT_CACHE_DISK. 0 keeps nothing
    there.
    """
    operations: Operations | None = None
    """The column of `runtime.nn.ops` that models compute by: MODELKIT_OPS. "plain" is every operation as it
    is defined, to tell a wrong kernel from a wrong model; None leaves it to the device.
    """
    shards: int = 1
    """Where several machines run a model: among how many of them each layer is shared. `load` says it."""
    max_waiting: int = 512
    """How many requests may wait for a loaded model; `load` can say another number."""
    keep_alive_s: float = 300.0
    """How long a server keeps a model that nobody uses, where a request does not say: MODELKIT_KEEP_ALIVE,
    such as 10m; infinity is for ever.
    """

    @classmethod
    def from_environment(cls, environment: dict[str, str] | None = None) -> "Settings":
        env = dict(os.environ) if environment is None else environment
        given = env.get("MODELKIT_HOME", "")
        try:
            home = Path(given).expanduser() if given else Path.home() / ".modelkit"
        except RuntimeError as error:  # no home directory for this user
            raise ModelkitError(
                f"cannot tell where the store lives: {error}", hint="Set MODELKIT_HOME to a folder."
            ) from error
        for name, words in _KERNELS.items():  # `runtime.cpu.native` reads them, and would pass over others
            _word_in(env, name, words)
        return cls(
            home=absolute(home),
            cache_memory_bytes=_size_in(env, "MODELKIT_CACHE_MEMORY"),
            cache_disk_bytes=_size_in(env, "MODELKIT_CACHE_DISK") or 0,
            operations=_operations_in(env, "MODELKIT_OPS"),
            keep_alive_s=_keep_alive_in(env, "MODELKIT_KEEP_ALIVE"),
        )


def settings_at(home: str | os.PathLike[str] | None) -> Settings:
    """What the surroundings decide, but for the folder where a caller names another."""
    surroundings = Settings.from_environment()
    return surroundings if home is None else replace(surroundings, home=absolute(path(home, "home")))


def launched(environment: dict[str, str] | None = None) -> bool:
    """Has a launcher of ranks started this process, which then holds its input?"""
    env = os.environ if environment is None else environment
    return any(name in env for name in _RANKS)


def one_of_several(environment: dict[str, str] | None = None) -> bool:
    """Has a launcher started this process as one of several that run a model together?"""
    env = os.environ if environment is None else environment
    alone = "1" in map(env.get, _SIZES) or _is_of_one(env.get("MLX_HOSTFILE", ""))
    return launched(environment) and not alone


def _is_of_one(path: str) -> bool:
    """`mlx.launch` gives a list of addresses without any where there is one machine."""
    try:
        said = Path(path).read_bytes()[:_SMALL].strip() if path else b"[]"
        hosts: Any = json.loads(said or b"[[]]")
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(hosts, list) and len(cast("list[Any]", hosts)) == 1


def check_launched(environment: dict[str, str] | None = None) -> None:
    """Is what a launcher says of this process among others what MLX can read? It ends the process for a rank
    below 0 and for no addresses, and takes a word for rank 0. Raises ParameterError.
    """
    env = os.environ if environment is None else environment
    if "MLX_RANK" not in env:
        return
    rank, path = env["MLX_RANK"], env.get("MLX_HOSTFILE")
    count = 2**31 if path is None else len(_addresses(path))
    if not (_NUMBER.fullmatch(rank) and int(rank) < count):
        least = "a whole number" if path is None else f"one of the {count} ranks of {path}, from 0 on"
        raise ParameterError(f"MLX_RANK is {shown(rank)}, expected {least}", hint=_LAUNCHED)


def _addresses(path: str) -> list[list[str]]:
    try:
        said: Any = json.loads(Path(path).read_bytes())
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ParameterError(
            f"MLX_HOSTFILE is {path}, which cannot be read: {why}", hint=_LAUNCHED
        ) from error
    except (ValueError, RecursionError):
        said = None
    if not (said and isinstance(said, list) and all(map(_are_texts, cast("list[Any]", said)))):
        raise ParameterError(
            f'MLX_HOSTFILE is {path}, expected a list of addresses for each rank: [["10.0.0.1:5000"], ...]',
            hint=_LAUNCHED,
        )
    return said


def _are_texts(said: Any) -> bool:
    return isinstance(said, list) and all(isinstance(one, str) for one in cast("list[Any]", said))


def rank_patience_s(environment: dict[str, str] | None = None) -> float:
    """How long another machine may keep this one waiting: MODELKIT_RANK_TIMEOUT, such as 60s. Raises
    ParameterError.
    """
    patience_s = _keep_alive_in(
        dict(os.environ) if environment is None else environment, "MODELKIT_RANK_TIMEOUT", 60.0
    )
    if not 0 < patience_s < float("inf"):
        raise ParameterError(
            "MODELKIT_RANK_TIMEOUT is how long to wait for another machine, and has to be more than 0",
            hint="Example: 60s.",
        )
    return patience_s


@contextmanager
def trusting() -> Generator[None]:
    """Certificates to trust are read within. ParameterError where SSL_CERT_FILE names what holds none."""
    try:
        yield
    except OSError as error:  # so is ssl.SSLError
        file = os.environ.get("SSL_CERT_FILE")
        if not file:
            raise
        raise ParameterError(
            f"SSL_CERT_FILE is {shown(file)}, which cannot be used: {(error.strerror or str(error)).lower()}",
            hint="It names a file with the certificates to trust, in PEM.",
        ) from error


def knows_escapes(environment: dict[str, str] | None = None) -> bool:
    """Does the terminal, if there is one, act on escape sequences? TERM=dumb, as in editors, shows them."""
    env = os.environ if environment is None else environment
    return env.get("TERM") != "dumb"


def wants_color(environment: dict[str, str] | None = None) -> bool:
    """Does it, and has nobody asked for none? NO_COLOR, as no-color.org says it."""
    env = os.environ if environment is None else environment
    return knows_escapes(environment) and not env.get("NO_COLOR")


@contextmanager
def surroundings(more: dict[str, str]) -> Generator[None]:
    """Inside, the environment has these too."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def server_address(environment: dict[str, str] | None = None) -> tuple[str, int]:
    """Host and port of the server, here or elsewhere: MODELKIT_HOST, such as 0.0.0.0:8080, [::1] or
    http://studio:11434. Raises ParameterError.
    """
    env = dict(os.environ) if environment is None else environment
    text = env.get("MODELKIT_HOST", "").strip()
    if not text:
        return SERVER_HOST, SERVER_PORT
    found = _SERVER.fullmatch(text)
    if found is None or (found[3] and int(found[3]) > 65535):
        raise ParameterError(
            f"MODELKIT_HOST is {shown(text)}, expected a host and a port",
            hint="Examples: 127.0.0.1:8080, 0.0.0.0, [::1]:11434.",
        )
    return found[1] or found[2], int(found[3]) if found[3] else SERVER_PORT


def server_named(environment: dict[str, str] | None = None) -> str | None:
    """The server's address for its clients, where MODELKIT_HOST says one. Raises ParameterError."""
    env = dict(os.environ) if environment is None else environment
    if not env.get("MODELKIT_HOST", "").strip():
        return None
    host, port = server_address(env)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 -- every address, for a server
    scheme = "https" if env["MODELKIT_HOST"].strip().startswith("https:") else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def server_key(environment: dict[str, str] | None = None) -> str | None:
    """What clients of the server must send: MODELKIT_API_KEY; None for nothing. Raises ParameterError."""
    env = dict(os.environ) if environment is None else environment
    key = env.get("MODELKIT_API_KEY", "").strip()
    if not can_be_key(key):
        raise ParameterError(f"MODELKIT_API_KEY {NO_KEY}")
    return key or None


NO_KEY = "has several lines, or a control character, and no client could send that"


def can_be_key(text: str) -> bool:
    """Can a header carry it?"""
    return not any(ord(letter) < 32 or ord(letter) == 127 for letter in text)


def key_password(environment: dict[str, str] | None = None) -> str | None:
    """What opens the key of the server's certificate: MODELKIT_SSL_KEYFILE_PASSWORD; None for nothing."""
    env = dict(os.environ) if environment is None else environment
    return env.get("MODELKIT_SSL_KEYFILE_PASSWORD") or None


def hub_cache(environment: dict[str, str] | None = None) -> Path:
    """Where huggingface_hub keeps what it downloaded: HF_HUB_CACHE, HF_HOME/hub, or the user's own cache. A
    `~` and names of variables in these stand for what they stand for in a shell, as they do there.
    """
    env = dict(os.environ) if environment is None else environment
    given = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE")
    if given:
        return _expanded(given, env)
    caches = env.get("XDG_CACHE_HOME") or str(_user_folder(env) / ".cache")
    return _expanded(env.get("HF_HOME") or os.path.join(caches, "huggingface"), env) / "hub"


def _expanded(text: str, env: dict[str, str]) -> Path:
    """As `os.path.expandvars` of `os.path.expanduser`, of these variables."""
    if text == "~" or text.startswith("~/"):
        text = f"{_user_folder(env)}{text[1:]}"
    return Path(_VARIABLE.sub(lambda one: env.get(one[1] or one[2], one[0]), os.path.expanduser(text)))


def _user_folder(env: dict[str, str]) -> Path:
    """The user's own: HOME, else what the system knows; the root where it knows none."""
    given = env.get("HOME")
    if given is not None:
        return Path(given or "/")
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path("/")


def credential_files(environment: dict[str, str] | None = None) -> list[Path]:
    """Where names and passwords for registries may be, in the order to ask: REGISTRY_AUTH_FILE alone where it
    is set, else the places of Podman and skopeo, then Docker's.
    """
    env = dict(os.environ) if environment is None else environment
    if env.get("REGISTRY_AUTH_FILE"):
        return [Path(env["REGISTRY_AUTH_FILE"])]
    home = _user_folder(env)
    found = [Path(env["XDG_RUNTIME_DIR"], "containers/auth.json")] if env.get("XDG_RUNTIME_DIR") else []
    settings = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    docker = Path(env.get("DOCKER_CONFIG") or home / ".docker")
    return [*found, settings / "containers/auth.json", docker / "config.json"]


@dataclass(frozen=True, slots=True)
class HubSettings:
    """What the surroundings say about the Hugging Face hub, in huggingface_hub's own variables."""

    cache: Path
    """Where huggingface_hub keeps what it downloaded."""
    endpoint: str
    """The server: HF_ENDPOINT."""
    offline: bool = False
    """HF_HUB_OFFLINE: the server must not be asked."""

    @classmethod
    def from_environment(cls, environment: dict[str, str] | None = None) -> "HubSettings":
        """Raises ParameterError for a HF_ENDPOINT that nothing can be read out of."""
        env = dict(os.environ) if environment is None else environment
        offline = env.get("HF_HUB_OFFLINE") or env.get("TRANSFORMERS_OFFLINE") or ""
        endpoint = (env.get("HF_ENDPOINT") or _HUB).rstrip("/")
        try:
            _ = urlsplit(endpoint).port
        except ValueError:  # whose text may hold a password
            raise ParameterError(
                "HF_ENDPOINT is no address of a server",
                hint="Unset it, or set it to a mirror: https://hub.example.org",
            ) from None
        return cls(
            cache=hub_cache(env),
            endpoint=endpoint,
            offline=offline.upper() in ("1", "ON", "YES", "TRUE"),
        )


def ollama_folders(environment: dict[str, str] | None = None) -> tuple[Path, ...]:
    """Where Ollama keeps models: OLLAMA_MODELS, else the user's folder and that of the service."""
    env = dict(os.environ) if environment is None else environment
    if given := env.get("OLLAMA_MODELS"):
        return (Path(given),)
    return _user_folder(env) / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models")


def llama_cpp_folders(environment: dict[str, str] | None = None) -> tuple[Path, ...]:
    """Where llama.cpp kept models before it shared huggingface_hub's cache."""
    env = dict(os.environ) if environment is None else environment
    if given := env.get("LLAMA_CACHE"):
        return (Path(given),)
    home = _user_folder(env)
    caches = home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"
    return (Path(env.get("XDG_CACHE_HOME") or caches, "llama.cpp"),)


def lm_studio_folders(environment: dict[str, str] | None = None) -> tuple[Path, ...]:
    """Where LM Studio keeps models: what its settings say, else the folders that it makes by itself."""
    env = dict(os.environ) if environment is None else environment
    home = _user_folder(env)
    own = (home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models")
    try:
        given = json.loads((home / ".lmstudio" / "settings.json").read_bytes()[:_SMALL]).get(
            "downloadsFolder"
        )
    except (OSError, ValueError, AttributeError, RecursionError):
        return own
    return (Path(given), *own) if isinstance(given, str) and given and "\0" not in given else own


def read_size(value: str | int, source: str) -> int:
    """A number of bytes: an int, or a text such as 2GB, 500 MB or 1.5GiB.

    source: the option or variable that it came from, for the message. Raises ParameterError.
    """
    found = _parsed(value) if isinstance(value, str) else as_whole(value)
    if found is None or not 0 <= found < _MOST_BYTES:
        raise ParameterError(
            f"{source} is {shown(value)}, expected a number of bytes", hint="Examples: 2GB, 500MB, 0."
        )
    return found


def _parsed(text: str) -> int | None:
    found = _SIZE.fullmatch(text.strip().upper())
    if found is None:
        return None
    whole, rest, unit, binary = found.groups()
    rest = rest or ""
    return int(whole + rest) * (1024 if binary else 1000) ** _POWERS[unit or ""] // 10 ** len(rest)


def _size_in(env: dict[str, str], name: str) -> int | None:
    """None where the variable is not set, or blank."""
    text = env.get(name, "")
    return read_size(text, name) if text.strip() else None


def _keep_alive_in(env: dict[str, str], name: str, default_s: float | None = None) -> float:
    text = env.get(name, "").strip()
    if text:
        return read_keep_alive(text, name)
    return Settings.__dataclass_fields__["keep_alive_s"].default if default_s is None else default_s


def _operations_in(env: dict[str, str], name: str) -> Operations | None:
    """None where the variable is not set, or blank."""
    return cast("Operations | None", _word_in(env, name, get_args(Operations)))


def _word_in(env: dict[str, str], name: str, words: tuple[str, ...]) -> str | None:
    """One of the words; None where the variable is not set, or blank."""
    text = env.get(name, "").strip().lower()
    if text and text not in words:
        raise ParameterError(
            f"{name} is {shown(env[name])}, expected one of {', '.join(words)}",
            hint="Leave it unset to compute in the fastest way that this machine has.",
        )
    return text or None
