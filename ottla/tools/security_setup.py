"""Security setup of ``ottla serve --secure``, `Broker` and `Cluster`: certificates, a user, files of client settings.

The setup is stored in files of the data directory, readable by their owner only, and reused by later starts. It has no
directory of its own, which Kafka, started on the same data, would take for a partition's.
"""

from __future__ import annotations

import json
import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ottla.client.scram import MECHANISM_TYPES, MIN_ITERATIONS, SCRAM_SHA_512, salted_password
from ottla.controller.control.scram_credentials import credential_record
from ottla.env.hosts import format_address
from ottla.log.directory.directory_listing import log_directory_error
from ottla.log.java_properties import dumps_settings
from ottla.wire.codec.schema import Message

USER = "admin"
LISTENER = "CLIENTS"
STATE_FILE, KEY_FILE, CA_FILE = "secure.json", "secure-server.pem", "secure-ca.pem"
JOIN_FILE = "secure-join.json"
"""Copied to another machine, it lets a node join the cluster: `JoinCredentials` as JSON."""
STATE_KEYS = ("protocol", "mechanism", "password", "trusted")
"""Keys in ``secure.json`` of the fields of `SecuritySetup`, in their order."""
COPIED_KEY = "copied"
"""Key in ``secure.json``: true if the credentials are those of a cluster that the node was told to join."""
MECHANISMS = ("PLAIN", *MECHANISM_TYPES)
"""SASL mechanisms of a security setup."""
_PASSWORD = re.compile(r"[A-Za-z0-9_=-]*")
CLIENT_FILES = {
    "java": "secure-client.properties",
    "librdkafka": "secure-librdkafka.properties",
    "confluent": "secure-confluent.json",
    "kafka-python": "secure-kafka-python.json",
}
"""File name of each form of client settings."""
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SecuritySetupFailed(Exception):
    """Raised if the setup cannot be created; the message is one line for the user."""


class SecuritySetup(NamedTuple):
    """Security protocol of a node, and the credentials of its user `USER`."""

    protocol: str
    mechanism: str
    """SASL mechanism; empty without authentication."""
    password: str
    ca_certificate: str
    """Path of the CA certificate file; empty without TLS."""

    def __repr__(self) -> str:
        return f"SecuritySetup({self.protocol}, {self.mechanism})"


class JoinCredentials(NamedTuple):
    """Credentials that the nodes of a secured cluster share."""

    protocol: str
    mechanism: str
    password: str
    ca_key: str
    """Private key of the certificate authority, as PEM."""
    ca_certificate: str
    """Certificate of the certificate authority, as PEM."""

    def __repr__(self) -> str:
        return f"JoinCredentials({self.protocol}, {self.mechanism})"


def load_join_credentials(path: str) -> JoinCredentials:
    """Read a copy of a node's `JOIN_FILE`.

    Raises:
        SecuritySetupFailed: the file cannot be read, or has other content.
    """
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        found = JoinCredentials(*(values[key] for key in JoinCredentials._fields))
    except OSError as error:
        raise SecuritySetupFailed(f"{path}: {error.strerror}{_advice_without_file(path)}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        found = None
    if found is None or not _is_valid(found):
        raise SecuritySetupFailed(f"{path}: not the file {JOIN_FILE} of a node that was started with --secure")
    return found


def _advice_without_file(path: str) -> str:
    """Return advice for a secured data directory without `JOIN_FILE`, as old versions leave it; else an empty text.

    ``path``: path of the file that could not be read.
    """
    directory = os.path.dirname(path) or "."
    if os.path.basename(path) != JOIN_FILE or not has_security_setup(directory):
        return ""
    return (
        f" ({directory} was created by a version that did not store the CA key: stop its node, remove "
        f"{CA_FILE}, start the node again, and give clients the new {CA_FILE})"
    )


def _is_valid(found: JoinCredentials) -> bool:
    """Return True if the fields are texts as `ensure_security_setup` writes them; the PEM texts are not parsed."""
    if not all(isinstance(value, str) for value in found):
        return False
    mechanisms: Mapping[str, tuple[str, ...]] = {"SSL": ("",), "SASL_SSL": MECHANISMS}
    is_password = _PASSWORD.fullmatch(found.password) is not None
    return found.mechanism in mechanisms.get(found.protocol, ()) and is_password


def _write(path: Path, text: str) -> None:
    """Replace the file at ``path`` atomically with a new one of mode 0600, whose content is synced.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(number, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(number)
    temporary.replace(path)


def _read_state(directory: str) -> dict[str, Any]:
    """Return the decoded content of `STATE_FILE` in a data directory, with the keys in `STATE_KEYS`.

    Raises:
        SecuritySetupFailed: it cannot be read, or is damaged.
    """
    path = Path(directory, STATE_FILE)
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SecuritySetupFailed(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict) or not all(isinstance(state.get(key), str) for key in STATE_KEYS):
        raise SecuritySetupFailed(
            f"{path} is damaged: a JSON object with {', '.join(STATE_KEYS)} expected; {JOIN_FILE} has the same "
            "protocol, mechanism and password"
        )
    return state


def has_security_setup(directory: str) -> bool:
    """Return True if a data directory stores a security setup."""
    return Path(directory, STATE_FILE).exists()


def has_copied_credentials(directory: str) -> bool:
    """Return True if a data directory stores the credentials of a cluster that its node was told to join.

    Raises:
        SecuritySetupFailed: the security setup is damaged.
    """
    return has_security_setup(directory) and bool(_read_state(directory).get(COPIED_KEY))


def is_formatted(directory: str) -> bool:
    """Return True if a data directory has ``meta.properties``: the node has created or joined a cluster."""
    return Path(directory, "meta.properties").exists()


def ensure_security_setup(
    directory: str,
    hosts: tuple[str, ...],
    *,
    tls: bool = True,
    mechanism: str = SCRAM_SHA_512,
    joined: JoinCredentials | None = None,
) -> SecuritySetup:
    """Return the security setup stored in a data directory; for a new directory create and store it.

    A stored setup keeps its protocol and mechanism for any ``tls`` and ``mechanism``.
    If the file of the CA certificate is missing, it is written again with a new certificate of the node, by the
    authority in `JOIN_FILE` or else by a new one; the credentials stay the same.

    Args:
        directory: the data directory.
        hosts: host names for the server's certificate.
        tls: whether listeners use TLS.
        mechanism: SASL mechanism; empty without authentication.
        joined: credentials of the cluster that the node joins, used until the directory is formatted, so that an
            attempt with those of another cluster can be repeated; None creates new ones.

    Raises:
        SecuritySetupFailed: the directory holds data without such a setup, the stored setup is damaged, or the
            mechanism is unknown.
        InvalidTlsConfig: the certificates cannot be created.
        OSError: a file cannot be read or written.
    """
    where = Path(directory)
    if has_security_setup(directory) and (joined is None or is_formatted(directory)):
        state = _read_state(directory)
        made = SecuritySetup(*(state[key] for key in STATE_KEYS))
        if made.ca_certificate and not (where / CA_FILE).exists():
            _write_certificates(where, made, hosts, _stored_authority(where))
        return made
    if is_formatted(directory):
        raise SecuritySetupFailed(
            f"{directory} was created without --secure: configure listeners and users in its settings"
        )
    if mechanism not in ("", *MECHANISMS):
        raise SecuritySetupFailed(f"unsupported SASL mechanism: {mechanism} (choose from {', '.join(MECHANISMS)})")
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise log_directory_error(directory, error) from None
    (where / STATE_FILE).unlink(missing_ok=True)
    if joined is not None:
        protocol, mechanism, password = joined.protocol, joined.mechanism, joined.password
    else:
        protocol = ("SASL_" if mechanism else "") + ("SSL" if tls else "PLAINTEXT")
        password = urlsafe_b64encode(os.urandom(18)).decode() if mechanism else ""
    made = SecuritySetup(protocol, mechanism, password, str((where / CA_FILE).absolute()) if tls else "")
    if tls:
        _write_certificates(where, made, hosts, joined)
    state = {**dict(zip(STATE_KEYS, made, strict=True)), COPIED_KEY: joined is not None}
    _write(where / STATE_FILE, json.dumps(state))  # written last: its presence means that the other files exist
    return made


def _stored_authority(where: Path) -> JoinCredentials | None:
    """Return the credentials in the `JOIN_FILE` of directory ``where``; None if it is missing.

    Raises:
        SecuritySetupFailed: the file cannot be read, or has other content.
    """
    return load_join_credentials(str(where / JOIN_FILE)) if (where / JOIN_FILE).exists() else None


def _write_certificates(
    where: Path, made: SecuritySetup, hosts: tuple[str, ...], shared: JoinCredentials | None
) -> None:
    """Write the node's certificate with its key, `JOIN_FILE` and the CA certificate into directory ``where``.

    ``shared`` has the authority that signs; None creates a new authority.

    Raises:
        InvalidTlsConfig: the certificates cannot be created.
    """
    # lazy: 2.5 ms, 48 kB
    from ottla.runtime.certificate_generator import GeneratedAuthority, generate_authority, generate_certificate

    known = None if shared is None else GeneratedAuthority(shared.ca_key, shared.ca_certificate)
    authority = known or generate_authority()
    credentials = JoinCredentials(made.protocol, made.mechanism, made.password, authority.key, authority.certificate)
    _write(where / KEY_FILE, generate_certificate(authority, ("localhost", "127.0.0.1", "::1", *hosts)))
    _write(where / JOIN_FILE, json.dumps(credentials._asdict()))
    _write(where / CA_FILE, authority.certificate)  # written last: without it, the next start writes all three again


def broker_settings(setup: SecuritySetup, directory: str, host: str, port: int) -> dict[str, str]:
    """Return the broker settings of a security setup, for client, inter-broker and controller connections.

    Args:
        setup: the security setup.
        directory: data directory with the files of the setup.
        host: host of the client listener.
        port: port of the client listener.
    """
    protocol = setup.protocol
    out = {
        "listeners": f"{LISTENER}://{format_address(host, port)}",
        "listener.security.protocol.map": f"{LISTENER}:{protocol},CONTROLLER:{protocol}",
        "inter.broker.listener.name": LISTENER,
    }
    if setup.ca_certificate:
        out |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(Path(directory, KEY_FILE).absolute()),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": setup.ca_certificate,
        }
    if setup.mechanism:
        out |= {"sasl.enabled.mechanisms": setup.mechanism, "sasl.mechanism.inter.broker.protocol": setup.mechanism}
        out["sasl.mechanism.controller.protocol"] = setup.mechanism
        for listener in (LISTENER.lower(), "controller"):
            key = f"listener.name.{listener}.{setup.mechanism.lower()}.sasl.jaas.config"
            out[key] = _jaas(setup, as_server=setup.mechanism == "PLAIN")
    return out


def cluster_settings(setup: SecuritySetup, directory: str, host: str, port: int) -> dict[str, str]:
    """Return the broker settings of a node that is broker and controller of a cluster.

    They are `broker_settings` and a controller listener with a free port, chosen at the first start. Controllers
    authenticate with PLAIN instead of SCRAM, since SCRAM credentials need a running quorum.
    """
    out = broker_settings(setup, directory, host, port)
    out["listeners"] += f",CONTROLLER://{format_address(host, 0)}"
    if setup.mechanism in MECHANISM_TYPES:
        prefix, key = "listener.name.controller.", "sasl.mechanism.controller.protocol"
        plain = broker_settings(setup._replace(mechanism="PLAIN"), directory, host, port)
        out = {name: value for name, value in out.items() if not name.startswith(prefix)}
        out |= {name: value for name, value in plain.items() if name.startswith(prefix) or name == key}
        out[f"{prefix}sasl.enabled.mechanisms"] = "PLAIN"
    return out


def scram_credential_records(setup: SecuritySetup) -> tuple[Message, ...]:
    """Return the metadata record of the SCRAM credential of `USER`, with a new salt; empty for another mechanism."""
    if setup.mechanism not in MECHANISM_TYPES:
        return ()
    salt = os.urandom(24)
    salted = salted_password(setup.mechanism, setup.password, salt, MIN_ITERATIONS)
    return (credential_record(USER, MECHANISM_TYPES[setup.mechanism], salted, salt, MIN_ITERATIONS),)


def _jaas(made: SecuritySetup, *, as_server: bool = False) -> str:
    module = _PLAIN if made.mechanism == "PLAIN" else _SCRAM
    user = f' user_{USER}="{made.password}"' if as_server else ""
    return f'{module} required username="{USER}" password="{made.password}"{user};'


def client_config(setup: SecuritySetup, kind: str, bootstrap: str) -> dict[str, str]:
    """Return client settings with the names that ``kind`` of client uses.

    Args:
        setup: the security setup.
        kind: ``java``, ``librdkafka``, ``confluent`` or ``kafka-python``.
        bootstrap: bootstrap servers.

    Raises:
        ValueError: ``kind`` is none of these.
    """
    if kind == "java":
        out = {"bootstrap.servers": bootstrap, "security.protocol": setup.protocol}
        if setup.mechanism:
            out |= {"sasl.mechanism": setup.mechanism, "sasl.jaas.config": _jaas(setup)}
        if setup.ca_certificate:
            out |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": setup.ca_certificate}
    elif kind in ("librdkafka", "confluent"):
        out = {"bootstrap.servers": bootstrap, "security.protocol": setup.protocol}
        if setup.mechanism:
            out |= {"sasl.mechanism": setup.mechanism, "sasl.username": USER, "sasl.password": setup.password}
        if setup.ca_certificate:
            out["ssl.ca.location"] = setup.ca_certificate
    elif kind == "kafka-python":
        out = {"bootstrap_servers": bootstrap, "security_protocol": setup.protocol}
        if setup.mechanism:
            out |= {"sasl_mechanism": setup.mechanism, "sasl_plain_username": USER}
            out["sasl_plain_password"] = setup.password
        if setup.ca_certificate:
            out["ssl_cafile"] = setup.ca_certificate
    else:
        raise ValueError(f"{kind!r}: java, librdkafka, confluent or kafka-python")
    return out


def write_client_files(setup: SecuritySetup, directory: str, bootstrap: str) -> list[str]:
    """Write client settings in each form into a file of ``directory``, with mode 0600; return a line about each.

    ``bootstrap``: bootstrap servers.

    Raises:
        OSError: a file cannot be written.
    """
    for kind, name in CLIENT_FILES.items():
        values = client_config(setup, kind, bootstrap)
        _write(Path(directory, name), _format_settings(values, kind))
    heads = {"java": "Java, Kafka's tools", "librdkafka": "kcat and librdkafka"}
    width = max(len(name) for name in CLIENT_FILES.values())
    return [f"  {directory}/{name.ljust(width)}  {heads.get(kind, kind)}" for kind, name in CLIENT_FILES.items()]


def _format_settings(values: Mapping[str, str], kind: str) -> str:
    if kind == "java":
        return dumps_settings(values)
    if kind == "librdkafka":  # no escapes in its properties files
        return "".join(f"{key}={value}\n" for key, value in values.items())
    return json.dumps(values, indent=2) + "\n"
