"""Certificate and key of the page, tried before it opens."""

from __future__ import annotations

import ssl

from streamad.errors import ConfigError, Problem
from streamad.plant import Plant


def checked_tls(plant: Plant) -> tuple[str, str] | None:
    """Return the files of certificate and key; None if the page serves http. Raises ConfigError."""
    tls = plant.settings.web.tls
    if tls is None:
        return None
    certificate, key = (plant.base_dir / each for each in (tls.certificate_file, tls.key_file))
    for name, path in (("certificate_file", certificate), ("key_file", key)):
        try:
            path.open("rb").close()
        except OSError as error:
            raise ConfigError([Problem(f"web.tls.{name}", f"{path}: {error.strerror}")]) from None
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key, password=lambda: "")  # else it would ask at the terminal
    except (ssl.SSLError, ValueError):
        why = f"{certificate} and {key} are no certificate with its private key (PEM, without a password)"
        raise ConfigError([Problem("web.tls", why)]) from None
    return str(certificate), str(key)
