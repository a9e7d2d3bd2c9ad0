"""Scan of the output of every node in tests for the secrets in its settings."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from ottla.client.jaas import InvalidJaasConfig, parse_jaas
from ottla.controller.config.config_keys import broker_key

MIN_SECRET_CHARS = 8
"""Minimum length of a scanned secret: shorter ones may occur for another reason."""


def find_secrets(settings: str) -> dict[str, str]:
    """Return the secrets in the text of a properties file, by setting."""
    out = {}
    for line in settings.splitlines():
        name, _, value = line.partition("=")
        key = broker_key(name.strip())
        if name.rpartition(".")[2] == "config" and "jaas" in name:
            try:
                options = parse_jaas(value).options
            except InvalidJaasConfig:
                continue
            secret = {k: v for k, v in options.items() if k.startswith("user_") or "password" in k.lower()}
            out |= {f"{name} {option}": text for option, text in secret.items()}
        elif key is not None and key.type == "PASSWORD":
            out[name] = value.strip()
    return {where: text for where, text in out.items() if len(text) >= MIN_SECRET_CHARS}


def find_exposed_secrets(command: list[str], log: Path) -> list[str]:
    """Return the places of secrets in a node's log or command line."""
    files = [Path(after) for word, after in pairwise(command) if word == "--config"]
    written = " ".join(command) + (log.read_text(errors="replace") if log.exists() else "")
    secrets = [x for file in files if file.exists() for x in find_secrets(file.read_text()).items()]
    return [where for where, text in secrets if text in written]
