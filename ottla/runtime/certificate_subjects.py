"""Subject (distinguished name) of a client certificate, from which the Kafka principal is built.

Source: ``DefaultKafkaPrincipalBuilder.java`` (apache/kafka 4.3.1), which uses Java's text; RFC 2253, RFC 5280.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any

_SHORT = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""Attribute names of RFC 2253. Java writes others as object identifiers with the value in hex; here `_BY_NUMBER`."""
_BY_NUMBER = {"emailAddress": ("1.2.840.113549.1.9.1", 0x16)}
_VERSION = 0xA0
_TEXTS = {12: "utf-8", **dict.fromkeys((18, 19, 20, 22, 26), "latin-1"), 28: "utf-32-be", 30: "utf-16-be"}
"""Text encodings of the ASN.1 string types, by tag."""


def format_subject(certificate: Any) -> str | None:
    """Return the subject in a result of `ssl.SSLSocket.getpeercert` as RFC 2253 text, such as ``CN=alice,O=Example``.

    The last part of the certificate's subject comes first. None: the peer has no certificate, or it was not verified.
    Attributes that RFC 2253 does not name have OpenSSL's long name, but e-mail addresses Java's form: number and hex.
    """
    if not certificate:
        return None
    return ",".join(
        "+".join(_escape_value(*pair) for pair in part) for part in _reversed(certificate.get("subject", ()))
    )


def peer_subject(sock: Any) -> str | None:
    """Return the subject of the peer's trusted certificate in the form of RFC 2253; None without a certificate.

    The ssl module parses the whole certificate, and fails for an alternative name that is not UTF-8: then only the
    subject is parsed.

    Raises:
        SSLError: the subject cannot be parsed.
    """
    try:
        return format_subject(sock.getpeercert())
    except ValueError:
        pass
    try:
        return format_subject({"subject": parse_subject(sock.getpeercert(binary_form=True))})
    except (ValueError, IndexError):
        raise ssl.SSLError(ssl.SSL_ERROR_SSL, "the subject of the certificate cannot be read") from None


def parse_subject(der: bytes) -> list[list[tuple[str, str]]]:
    """Return the subject of an X.509 certificate as (name, value) pairs, in the form of `ssl.SSLSocket.getpeercert`.

    Raises:
        ValueError, IndexError: the certificate is malformed.
    """
    (_, certificate), *_ = _values(der)
    (_, signed), *_ = _values(certificate)
    fields = _values(signed)
    if fields[0][0] == _VERSION:
        del fields[0]
    _serial, _algorithm, _issuer, _validity, (_, subject) = fields[:5]
    return [[_pair(pair) for _, pair in _values(part)] for _, part in _values(subject)]


def _values(raw: bytes) -> list[tuple[int, bytes]]:
    """Return the consecutive DER-encoded ASN.1 values in ``raw`` as (tag, content).

    Raises:
        ValueError, IndexError: a value is malformed.
    """
    out, pos = [], 0
    while pos < len(raw):
        tag, size, pos = raw[pos], raw[pos + 1], pos + 2
        if size > 0x80:
            count = size - 0x80
            size, pos = int.from_bytes(raw[pos : pos + count], "big"), pos + count
        elif size == 0x80:
            raise ValueError("of no length")
        if tag & 0x1F == 0x1F or pos + size > len(raw):
            raise ValueError("cut off")
        out.append((tag, raw[pos : pos + size]))
        pos += size
    return out


def _pair(raw: bytes) -> tuple[str, str]:
    (_, name), (tag, text) = _values(raw)
    if tag not in _TEXTS:
        raise ValueError("no text")
    return _long_name(name), text.decode(_TEXTS[tag])


def _long_name(raw: bytes) -> str:
    """Return OpenSSL's long name of a DER-encoded object identifier, or its dotted numbers."""
    numbers, number = list[int](), 0
    for byte in raw:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    dotted = ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
    try:
        return ssl._ASN1Object(dotted).longname
    except ValueError:  # OpenSSL has no name for it
        return dotted


def _reversed(parts: Iterable[Any]) -> list[Any]:
    return list(parts)[::-1]


def _escape_value(name: str, value: str) -> str:
    if name in _BY_NUMBER:
        number, tag = _BY_NUMBER[name]
        raw = value.encode()
        size = bytes([len(raw)]) if len(raw) < 128 else bytes([0x82, *divmod(len(raw), 256)])
        return f"{number}=#{(bytes([tag]) + size + raw).hex()}"
    out = "".join("\\" + c if c in ',+"\\<>;' else c for c in value)
    if out.startswith(("#", " ")):
        out = "\\" + out
    if out.endswith(" ") and len(out) > 1:
        out = out[:-1] + "\\ "
    return f"{_SHORT.get(name, name)}={out}"
