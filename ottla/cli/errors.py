"""Error messages of the command line: one line, without errno and Python class names."""

from __future__ import annotations

import socket
import ssl

from ottla.client.channel import Disconnected, UnsupportedVersionError
from ottla.wire.errors import ErrorCode, ProtocolError, WireError

SECURITY_HINT = "the listener may require TLS or a login: --command-config FILE"
PLAINTEXT_HINT = "the listener may be plaintext: security.protocol in --command-config"


class CommandFailed(Exception):
    """Failure of a command; the message is one line for the user."""


def os_error_text(error: OSError) -> str:
    """Return the message of an OSError with its file name and without errno."""
    reason = error.strerror or str(error) or type(error).__name__
    return reason if error.filename is None else f"{error.filename}: {reason}"


def failure_text(error: BaseException) -> str:
    """Return the message of an error; that of an OSError has its file name and no errno."""
    return os_error_text(error) if isinstance(error, OSError) else str(error)


def code_text(code: int, message: str | None = None) -> str:
    """Return the text of an error code, without full stop at its end: ``message`` of the broker, else Kafka's text.

    Of a code that is not known it is the unchanged message, or ``unknown error code N``.
    """
    try:
        known = ErrorCode(code)
    except ValueError:
        return message or f"unknown error code {code}"
    return (message or known.text).removesuffix(".")


def raise_for_error(code: int, message: str | None, subject: str) -> None:
    """Raise an error code of a response as an exception; ``subject`` begins its message.

    Raises:
        CommandFailed: the code is not 0.
    """
    if code:
        raise CommandFailed(f"{subject}: {code_text(code, message)}")


def raise_for_topic(code: int, message: str | None, name: str) -> None:
    """Raise an error code of a response about topic ``name`` as an exception; ``message``: that of the response.

    Raises:
        CommandFailed: the code is not 0.
    """
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise CommandFailed(f"topic {name} does not exist")
    raise_for_error(code, message, f"topic {name}")


def protocol_error_text(error: ProtocolError) -> str:
    """Return the text of the error code, and after a colon the message of the exception, if it has one."""
    text = code_text(error.code)
    return text if not error.message else f"{text}: {error.message}"


def connection_error_text(error: OSError, bootstrap: str, *, secured: bool) -> str:
    """Return the message for a cluster that cannot be reached, with a hint at the likely cause.

    Args:
        error: the failure.
        bootstrap: the addresses that were tried.
        secured: whether the client used TLS or SASL.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate of {bootstrap} is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "handshake failed").replace("_", " ").lower()
        return f"TLS failed: {bootstrap}: {reason} ({PLAINTEXT_HINT})"
    if isinstance(error, socket.gaierror):
        return f"unknown host: {bootstrap}"
    reason = os_error_text(error)
    if isinstance(error, ConnectionRefusedError):
        return f"cannot connect to {bootstrap}: {reason}"
    if isinstance(error, ConnectionError | Disconnected):
        hint = "" if secured else f" ({SECURITY_HINT})"
        return f"connection lost: {bootstrap}: {reason}{hint}"
    return f"cannot connect to {bootstrap}: {reason}"


def error_text(error: Exception, bootstrap: str, *, secured: bool = False) -> str:
    """Return the message of a command that failed on the cluster at ``bootstrap``: one line, without ``ottla:``.

    The message of a failed connection and of an undecodable response names ``bootstrap``; that of an error code does
    not. For an exception of another kind it is its text. ``secured``: whether the client used TLS or SASL.
    """
    if isinstance(error, ProtocolError):
        return protocol_error_text(error)
    if isinstance(error, OSError):
        if error.filename is not None:
            return os_error_text(error)
        return connection_error_text(error, bootstrap, secured=secured)
    if isinstance(error, UnsupportedVersionError):
        return f"unsupported request: {bootstrap}: {error}"
    if isinstance(error, WireError):
        return f"protocol error: {bootstrap}: {error}"
    return str(error)
