"""What is said of a server whose certificate nobody here trusts."""

from modelkit.errors import FetchError


def unvouched(host: str, why: str) -> FetchError:
    return FetchError(
        f"{host} cannot show that it is {host}: {why}",
        hint="Where a server or proxy of your own signs certificates, let SSL_CERT_FILE name a file with the "
        "certificates to trust; REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE are not read.",
    )
