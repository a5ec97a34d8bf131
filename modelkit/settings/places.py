"""Where other programs keep models, names and passwords, and whom they trust."""

import json
import os
import pwd
import re
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from modelkit.errors import ParameterError
from modelkit.python_faults import os_reason
from runtime.quoting import quoted
from runtime.records import dataclass

_VARIABLE = re.compile(r"\$(?:(\w+)|\{([^}]*)\})", re.ASCII)
_SMALL = 1 << 20
_HUB = "https://huggingface.co"


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
            f"SSL_CERT_FILE is {quoted(file)}, which cannot be used: {os_reason(error)}",
            hint="It names a file with the certificates to trust, in PEM.",
        ) from error


def hub_cache(env: Mapping[str, str] = os.environ) -> Path:
    """Where huggingface_hub keeps what it downloaded: HF_HUB_CACHE, HF_HOME/hub, or the user's own cache. A
    `~` and names of variables in these stand for what they stand for in a shell, as they do there.
    """
    given = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE")
    if given:
        return _expanded(given, env)
    caches = env.get("XDG_CACHE_HOME") or str(_user_folder(env) / ".cache")
    return _expanded(env.get("HF_HOME") or os.path.join(caches, "huggingface"), env) / "hub"


def _expanded(text: str, env: Mapping[str, str]) -> Path:
    """As `os.path.expandvars` of `os.path.expanduser`, of these variables."""
    if text == "~" or text.startswith("~/"):
        text = f"{_user_folder(env)}{text[1:]}"
    return Path(_VARIABLE.sub(lambda one: env.get(one[1] or one[2], one[0]), os.path.expanduser(text)))


def _user_folder(env: Mapping[str, str]) -> Path:
    """The user's own: HOME, else what the system knows; the root where it knows none."""
    given = env.get("HOME")
    if given is not None:
        return Path(given or "/")
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path("/")


def credential_files(env: Mapping[str, str] = os.environ) -> list[Path]:
    """Where names and passwords for registries may be, in the order to ask: REGISTRY_AUTH_FILE alone where it
    is set, else the places of Podman and skopeo, then Docker's.
    """
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
    def from_environment(cls, env: Mapping[str, str] = os.environ) -> "HubSettings":
        """Raises ParameterError for a HF_ENDPOINT that nothing can be read out of."""
        offline = env.get("HF_HUB_OFFLINE") or env.get("TRANSFORMERS_OFFLINE") or ""
        endpoint = (env.get("HF_ENDPOINT") or _HUB).rstrip("/")
        try:
            _ = urlsplit(endpoint).port
        except ValueError:  # whose text may hold a password
            raise ParameterError(
                "HF_ENDPOINT is not an address of a server",
                hint="Unset it, or set it to a mirror: https://hub.example.org",
            ) from None
        return cls(
            cache=hub_cache(env),
            endpoint=endpoint,
            offline=offline.upper() in ("1", "ON", "YES", "TRUE"),
        )


def ollama_folders(env: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Where Ollama keeps models: OLLAMA_MODELS, else the user's folder and that of the service."""
    if given := env.get("OLLAMA_MODELS"):
        return (Path(given),)
    return _user_folder(env) / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models")


def llama_cpp_folders(env: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Where llama.cpp kept models before it shared huggingface_hub's cache."""
    if given := env.get("LLAMA_CACHE"):
        return (Path(given),)
    home = _user_folder(env)
    caches = home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"
    return (Path(env.get("XDG_CACHE_HOME") or caches, "llama.cpp"),)


def lm_studio_folders(env: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Where LM Studio keeps models: what its settings say, else the folders that it makes by itself."""
    home = _user_folder(env)
    own = (home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models")
    try:
        given = json.loads((home / ".lmstudio" / "settings.json").read_bytes()[:_SMALL]).get(
            "downloadsFolder"
        )
    except (OSError, ValueError, AttributeError, RecursionError):
        return own
    return (Path(given), *own) if isinstance(given, str) and given and "\0" not in given else own
