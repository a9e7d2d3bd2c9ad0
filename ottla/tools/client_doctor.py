"""Checks of the configuration of a Kafka client for ``ottla doctor``: addresses, security settings, numbers, acks.

Of misspelt names only those of security settings and of ``bootstrap.servers`` are found.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from ottla.client.security_config import PROTOCOLS, InvalidSecurityConfig, parse_connection_security
from ottla.log.java_properties import Property
from ottla.tools.doctor import DOUBTFUL, WRONG, ConfigFinding
from ottla.tools.named_files import diagnose_paths, tls_problem

BROKER_ONLY = ("process.roles", "node.id", "broker.id", "listeners", "log.dirs", "log.dir", "zookeeper.connect")
"""Settings that only a broker has: one of them makes a file a broker's configuration."""
_SECURITY_KEYS = (
    "bootstrap.servers",
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
    "ssl.truststore.certificates",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
_LIBRDKAFKA = {
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.username": "sasl.jaas.config",
    "sasl.password": "sasl.jaas.config",
    "ssl.ca.location": "ssl.truststore.location with ssl.truststore.type=PEM",
    "ssl.certificate.location": "ssl.keystore.location with ssl.keystore.type=PEM",
    "ssl.key.location": "ssl.keystore.location with ssl.keystore.type=PEM",
    "metadata.broker.list": "bootstrap.servers",
}
"""Setting of Java clients and Kafka's tools for each name that only librdkafka knows."""
_MAX_IN_FLIGHT = 5


def is_client_config(lines: list[Property]) -> bool:
    """Return True if the settings are those of a client, not of a broker.

    A client's settings have bootstrap servers, and none of the settings in `BROKER_ONLY`.
    """
    keys = {line.key for line in lines}
    return bool(keys & {"bootstrap.servers", "metadata.broker.list"}) and not keys & set(BROKER_ONLY)


def diagnose_client(lines: list[Property]) -> list[ConfigFinding]:
    """Return all findings about a client's settings, ordered by line number; key and trust stores are read."""
    by_key = {line.key: line for line in lines}
    rules = (_addresses, _names, _numbers, _unused_security, _security, _idempotence)
    found = {finding for rule in rules for finding in rule(by_key)}
    return sorted({*found, *diagnose_paths(lines)})


def _finding(line: Property, severity: str, text: str) -> ConfigFinding:
    return ConfigFinding(line.number, line.key, severity, text)


def _addresses(by_key: Mapping[str, Property]) -> Iterator[ConfigFinding]:
    line = by_key.get("bootstrap.servers")
    if line is None:
        return
    for part in (x.strip() for x in line.value.split(",")):
        host, _, port = part.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65536:
            yield _finding(line, WRONG, f"HOST:PORT expected: {part or line.value}")
        elif host in ("0.0.0.0", "[::]"):  # noqa: S104 - that is what is looked for
            yield _finding(line, WRONG, f"{host} is no address that a client can connect to")


def _names(by_key: Mapping[str, Property]) -> Iterator[ConfigFinding]:
    for line in by_key.values():
        if line.key in _LIBRDKAFKA:
            text = f"a setting of librdkafka; Java and Kafka's tools use {_LIBRDKAFKA[line.key]}"
            yield _finding(line, DOUBTFUL, text)
        elif line.key not in _SECURITY_KEYS:
            near = difflib.get_close_matches(line.key, _SECURITY_KEYS, 1, 0.93)
            if near:
                yield _finding(line, DOUBTFUL, f"unknown setting; did you mean {near[0]}?")


def _numbers(by_key: Mapping[str, Property]) -> Iterator[ConfigFinding]:
    for line in by_key.values():
        value = line.value.strip()
        if line.key.endswith((".ms", ".bytes", ".seconds")) and not value.removeprefix("-").isdecimal():
            yield _finding(line, WRONG, f"whole number without a unit expected: {value}")


def _unused_security(by_key: Mapping[str, Property]) -> Iterator[ConfigFinding]:
    named = by_key.get("security.protocol")
    protocol = "PLAINTEXT" if named is None else named.value.strip().upper()
    if protocol not in PROTOCOLS:
        return  # reported by another rule
    for line in by_key.values():
        needed = "SASL_SSL or SASL_PLAINTEXT" if line.key.startswith("sasl.") else "SSL or SASL_SSL"
        unused = (line.key.startswith("sasl.") and not protocol.startswith("SASL")) or (
            line.key.startswith("ssl.") and not protocol.endswith("SSL")
        )
        if unused:
            yield _finding(line, DOUBTFUL, f"has no effect: security.protocol is {protocol}, not {needed}")


def _security(by_key: Mapping[str, Property]) -> Iterator[ConfigFinding]:
    values = {line.key: line.value for line in by_key.values()}
    line = by_key.get("security.protocol")
    if line is None:
        return
    if line.value.strip().upper().startswith("SASL") and not values.get("sasl.jaas.config"):
        yield _finding(line, WRONG, "sasl.jaas.config is missing: no user is named")
        return
    try:
        access = parse_connection_security(values)
    except InvalidSecurityConfig as error:
        text = str(error)
        named = max((key for key in by_key if key in text), key=len, default="security.protocol")
        yield _finding(by_key[named], WRONG, text)
        return
    except OSError:
        return  # missing file, reported by another rule
    if access.tls is None:
        return
    # lazy: 9.3 ms, 916 kB: only with TLS
    from ottla.runtime.ssl_contexts import client_ssl_context

    tls = access.tls
    problem = tls_problem(lambda: client_ssl_context(tls))
    if problem is not None:
        keys = [key for key in ("ssl.keystore.location", "ssl.truststore.location") if key in by_key]
        named = next((key for key in keys if by_key[key].value in problem), keys[0] if keys else "security.protocol")
        yield _finding(by_key[named], WRONG, problem)


def _idempotence(by_key: Mapping[str, Property]) -> Iterator[ConfigFinding]:
    line = by_key.get("enable.idempotence")
    if line is None or line.value.strip().lower() != "true":
        return
    acks, in_flight = by_key.get("acks"), by_key.get("max.in.flight.requests.per.connection")
    if acks is not None and acks.value.strip() not in ("all", "-1"):
        yield _finding(acks, WRONG, "enable.idempotence needs acks=all")
    if in_flight is not None and in_flight.value.isdecimal() and int(in_flight.value) > _MAX_IN_FLIGHT:
        yield _finding(in_flight, WRONG, f"enable.idempotence needs at most {_MAX_IN_FLIGHT}")
