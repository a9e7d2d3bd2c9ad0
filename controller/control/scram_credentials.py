"""AlterUserScramCredentials on the active controller, and the option ``--add-scram`` of the format command.

Stored are salt, iterations and two keys, never passwords. Behaviour (S-323, S-324): a request may contain a user once;
a duplicate user stays unchanged. The valid changes are written as one batch: if that would be too large the request is
rejected as a whole. The client salts the password, and both keys are derived here.

Source: ``ScramControlManager.java``, ``ScramImage.java``, ``ScramParser.java`` (apache/kafka 4.3.1).

From KIP-554; in the metadata log and at format since KIP-900.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as BadBase64
from itertools import chain

from ottla.client import scram
from ottla.controller.control.controller_result import ControllerResult, ControllerResultSteps
from ottla.controller.limits import MAX_SCRAM_FIELD_BYTES
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.partitions.partition_assignment import RequestTooLarge, check_batch_limits, utf8_size
from ottla.jobs.job import Job
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.metadata_records import NoOpRecord, RemoveUserScramCredentialRecord, UserScramCredentialRecord

MECHANISMS = {number: name for name, number in scram.MECHANISM_TYPES.items()}
_ALTERED_TWICE = "A user credential cannot be altered twice in the same request"
ScramError = tuple[ErrorCode, str | None]


class InvalidScramOption(Exception):
    """Value of ``--add-scram`` that cannot be parsed; the message contains no password."""


def _name_error(name: str, mechanism: int) -> ScramError | None:
    if not name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if mechanism not in MECHANISMS:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    return None


def _deletion_error(image: MetadataImage, deletion: ScramCredentialDeletion) -> ScramError | None:
    wrong = _name_error(deletion.name, deletion.mechanism)
    if wrong is None and ("scram", deletion.name, deletion.mechanism) not in image.others:
        wrong = ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
    return wrong


def _upsertion_error(upsertion: ScramCredentialUpsertion) -> ScramError | None:
    wrong = _name_error(upsertion.name, upsertion.mechanism)
    if wrong is None and upsertion.iterations < scram.MIN_ITERATIONS:
        wrong = ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    if wrong is None and upsertion.iterations > scram.MAX_ITERATIONS:
        wrong = ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    if wrong is None and max(len(upsertion.salt), len(upsertion.salted_password)) > MAX_SCRAM_FIELD_BYTES:
        wrong = (
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"A salt or a salted password of more than {MAX_SCRAM_FIELD_BYTES} bytes",
        )
    return wrong


def credential_record(
    name: str, mechanism: int, salted: bytes, salt: bytes, iterations: int
) -> UserScramCredentialRecord:
    """Return the credential record of a user with the keys derived from a salted password.

    ``mechanism``: Kafka's number.
    """
    keys = scram.derive_credential(MECHANISMS[mechanism], salted, salt, iterations)
    return UserScramCredentialRecord(name, mechanism, salt, keys.stored_key, keys.server_key, iterations)


def alter_scram_credentials(image: MetadataImage, request: AlterUserScramCredentialsRequest) -> ControllerResultSteps:
    """Return the records and response of AlterUserScramCredentials, as a job; the response has one row per user.

    If the records do not fit into one batch, each row has the error of that, and there are no records.
    """
    wrong: dict[str, ScramError] = {}
    fine: dict[str, Message] = {}
    try:
        yield from _alter(image, request, fine, wrong)
    except RequestTooLarge as error:
        fine.clear()
        names = chain((x.name for x in request.deletions), (x.name for x in request.upsertions))
        for name in names:
            wrong[name] = error.code, str(error)
            yield None
    rows = [AlterUserScramCredentialsResult(name, 0, None) for name in fine]
    for name, why in wrong.items():
        rows.append(AlterUserScramCredentialsResult(name, *why))
        yield None
    return ControllerResult(AlterUserScramCredentialsResponse(results=rows), list(fine.values()))


def _alter(
    image: MetadataImage,
    request: AlterUserScramCredentialsRequest,
    fine: dict[str, Message],
    wrong: dict[str, ScramError],
) -> Job[None]:
    """Validate all changes, as a job; put each user's record into ``fine``, or its error into ``wrong``.

    Raises:
        RequestTooLarge: the records do not fit into one batch.
    """
    for deletion in request.deletions:
        _validate_user(deletion.name, _deletion_error(image, deletion), fine, wrong)
        if deletion.name in fine:
            fine[deletion.name] = RemoveUserScramCredentialRecord(deletion.name, deletion.mechanism)
        yield None
    keyless: list[str] = []
    for x in request.upsertions:
        _validate_user(x.name, _upsertion_error(x), fine, wrong)
        if x.name in fine:
            fine[x.name] = credential_record(x.name, x.mechanism, x.salted_password, x.salt, x.iterations)
            check_batch_limits(len(fine), 0)
            if not x.salted_password:
                keyless.append(x.name)
        yield None
    for name in keyless:  # Java rejects an empty key, and does so after all changes are validated
        if fine.pop(name, None) is not None:
            wrong[name] = ErrorCode.UNKNOWN_SERVER_ERROR, None
    salts = sum(len(x.salt) for x in fine.values() if isinstance(x, UserScramCredentialRecord))
    check_batch_limits(len(fine), utf8_size(fine) + salts)


def _validate_user(name: str, error: ScramError | None, fine: dict[str, Message], wrong: dict[str, ScramError]) -> None:
    """Record ``error`` of a user in ``wrong``, or without one a placeholder record in ``fine``.

    A user that is in ``fine`` already is moved to ``wrong`` with DUPLICATE_RESOURCE.
    """
    if name in wrong:
        return
    if fine.pop(name, None) is not None:
        wrong[name] = ErrorCode.DUPLICATE_RESOURCE, _ALTERED_TWICE
    elif error is not None:
        wrong[name] = error
    else:
        fine[name] = NoOpRecord()


def parse_scram_option(text: str, fresh_salt: bytes) -> UserScramCredentialRecord:
    """Return the credential record of a ``--add-scram`` value, such as ``SCRAM-SHA-256=[name=alice,password=...]``.

    Other keys: ``salt``, ``iterations``, ``saltedpassword``. ``fresh_salt`` is used if no salt is given.

    Raises:
        InvalidScramOption: the value cannot be parsed, or a key is missing or invalid.
    """
    mechanism, separator, rest = text.strip().partition("=")
    if not separator or mechanism not in scram.MECHANISM_TYPES:
        raise InvalidScramOption(
            f"--add-scram: MECHANISM=[name=NAME,password=PASSWORD] expected ({', '.join(scram.MECHANISM_TYPES)})"
        )
    if not rest.startswith("[") or not rest.endswith("]"):
        raise InvalidScramOption(f"--add-scram {mechanism}: [name=NAME,password=PASSWORD] expected")
    parts: dict[str, str] = {}
    for part in rest[1:-1].split(","):
        key, separator, value = part.strip().partition("=")
        parts[key] = value.removeprefix('"').removesuffix('"') if value[:1] == value[-1:] == '"' else value
        if not separator or key not in ("name", "password", "salt", "iterations", "saltedpassword"):
            raise InvalidScramOption(
                f"--add-scram {mechanism}: unknown SCRAM configuration{f': {key[:20]}' if separator else ''}"
            )
    return _credential_from_option(mechanism, parts, fresh_salt)


def _credential_from_option(mechanism: str, parts: dict[str, str], salt: bytes) -> UserScramCredentialRecord:
    name, password = parts.get("name", ""), parts.get("password", "")
    if not name or not (password or parts.get("saltedpassword")):
        raise InvalidScramOption(f"--add-scram {mechanism}: name and one of password and saltedpassword are required")
    try:
        iterations = int(parts.get("iterations", scram.MIN_ITERATIONS))
        if "salt" in parts:
            salt = b64decode(parts["salt"], validate=True)
        salted = b64decode(parts.get("saltedpassword", ""), validate=True)
    except (ValueError, BadBase64):
        raise InvalidScramOption(
            f"--add-scram {mechanism}: salt and saltedpassword are base64, iterations a number"
        ) from None
    if not scram.MIN_ITERATIONS <= iterations <= scram.MAX_ITERATIONS:
        bounds = f"{scram.MIN_ITERATIONS} to {scram.MAX_ITERATIONS}"
        raise InvalidScramOption(f"--add-scram {mechanism}: {iterations} iterations; {bounds} are possible")
    if password:
        salted = scram.salted_password(mechanism, password, salt, iterations)
    elif "salt" not in parts:
        raise InvalidScramOption(f"--add-scram {mechanism}: saltedpassword needs its salt")
    return credential_record(name, scram.MECHANISM_TYPES[mechanism], salted, salt, iterations)
