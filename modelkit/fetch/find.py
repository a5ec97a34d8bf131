"""A text or an address -> a model's files on this machine, or what to do to have them. (Packages of
registries are stored as they are, so they are pulled: `pack.pulling`.)

Bare names are looked for in the folders of other programs, never fetched; addresses are.
"""

import re

from modelkit.address import HubAddress, OllamaAddress, is_address
from modelkit.errors import ModelkitError, ModelNotFound
from modelkit.fetch.access import Access
from modelkit.fetch.local import Local
from modelkit.settings.places import HubSettings, llama_cpp_folders, lm_studio_folders, ollama_folders

_OWNED = re.compile(r"([A-Za-z0-9][\w.-]{0,95})/([A-Za-z0-9][\w.-]{0,95})", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_OLLAMAS = re.compile(r"((?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*)(?::[\w.-]+)?", re.ASCII)


def obtain(address: HubAddress | OllamaAddress, access: Access) -> Local:
    """The files that an address names, fetched as far as `access` allows. Raises FetchError, SourceError,
    StoreError.
    """
    if isinstance(address, HubAddress):
        from modelkit.fetch.hub.obtain import obtain as obtain_from_hub

        return obtain_from_hub(address, access, HubSettings.from_environment())
    from modelkit.fetch.ollama_store import open_stored

    return open_stored(address, ollama_folders())


def obtain_adapter(address: HubAddress, access: Access) -> Local:
    """The files of a LoRA adapter on the hub. Raises as `obtain`."""
    from modelkit.fetch.hub.choose import choose_adapter
    from modelkit.fetch.hub.obtain import obtain as obtain_from_hub

    return obtain_from_hub(address, access, HubSettings.from_environment(), choose_adapter)


def find_local(text: str) -> Local | None:
    """`owner/model`, where huggingface_hub, LM Studio or llama.cpp has it. A note says which is used."""
    owned = _OWNED.fullmatch(text)
    if owned is None or ".." in text:
        return None
    from modelkit.fetch.hub.obtain import find_cached
    from modelkit.fetch.plain_files import find_in_llama_cpp, find_in_lm_studio

    address, hub = HubAddress(text), HubSettings.from_environment()
    return (
        find_cached(address, hub)
        or find_in_lm_studio(owned[1], owned[2], lm_studio_folders())
        or find_in_llama_cpp(owned[1], owned[2], llama_cpp_folders())
        or find_cached(address, hub, main=False)  # last: it may be no more than somebody's tokenizer
    )


def what_to_do(text: str, error: ModelkitError) -> str | None:
    """A hint for a name that the store says it has not: its own, and where else such a name leads. A bare
    word that is close to a package's name is a typing error.
    """
    close = isinstance(error, ModelNotFound) and error.close
    elsewhere = None if close and _WORD.fullmatch(text) else where_to_get(text)
    if elsewhere is None:
        return error.hint
    return f"{error.hint}\n{elsewhere}" if close else elsewhere


def where_to_get(text: str) -> str | None:
    """What to do about a name that no package has; None where it does not look like another program's."""
    if is_address(text):
        return f"modelkit pull {text} fetches it."
    if _OWNED.fullmatch(text) and ".." not in text:
        return f"Nothing is fetched for a name without a host. From the hub: modelkit pull hf.co/{text}"
    if _OLLAMAS.fullmatch(text):
        if _WORD.fullmatch(text):
            return (
                f"`modelkit list` shows what is stored. To fetch it: modelkit pull ollama.com/{text}, or "
                f"hf.co/OWNER/{text}"
            )
        return (
            "`modelkit list` shows what is stored. What Ollama has on this machine is named\n"
            f"ollama:{text}; from its library it is fetched by: modelkit pull ollama.com/{text}"
            + (f"\nA quant of the hub: modelkit pull hf.co/{text}" if "/" in text else "")
        )
    return None
