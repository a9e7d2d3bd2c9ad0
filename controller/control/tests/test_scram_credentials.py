"""SCRAM credentials: AlterUserScramCredentials (S-324), stored keys, and the option ``--add-scram``."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from ottla.client.scram import SCRAM_SHA_256, derive_credential, salted_password
from ottla.controller.control import scram_credentials
from ottla.controller.metadata.image import MetadataImage, image_records
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.jobs.job import run_to_end
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.metadata_records import UserScramCredentialRecord

SALTED = salted_password(SCRAM_SHA_256, "pencil", b"salt", 4096)


def up(name: str = "alice", mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(name, mechanism, iterations, b"salt", SALTED)


def down(name: str = "alice", mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name, mechanism)


def after(records, image: MetadataImage | None = None) -> MetadataImage:
    draft = ImageBuilder(image or MetadataImage())
    for record in records:
        draft.replay(record)
    return run_to_end(draft.image(1, 1))


WITH_ALICE = after(
    run_to_end(
        scram_credentials.alter_scram_credentials(MetadataImage(), AlterUserScramCredentialsRequest([], [up()]))
    ).records
)


def decide(deletions, upsertions, image: MetadataImage = WITH_ALICE):
    decision = run_to_end(
        scram_credentials.alter_scram_credentials(image, AlterUserScramCredentialsRequest(deletions, upsertions))
    )
    return {x.user: x.error_code for x in decision.response.results}, decision.records


@pytest.mark.behaviour("S-323")
def test_alter_scram_credentials_derives_keys_from_salted_password():
    _, records = decide([], [up("bob")])
    keys = derive_credential(SCRAM_SHA_256, SALTED, b"salt", 4096)
    assert records == [UserScramCredentialRecord("bob", 1, b"salt", keys.stored_key, keys.server_key, 4096)]


@pytest.mark.behaviour("S-324")
@pytest.mark.parametrize(
    ("deletions", "upsertions", "codes", "count"),
    [
        ([down()], [], {"alice": 0}, 1),
        ([], [up("bob"), up("carol", 2)], {"bob": 0, "carol": 0}, 2),
        ([], [up("")], {"": ErrorCode.UNACCEPTABLE_CREDENTIAL}, 0),
        ([down("")], [], {"": ErrorCode.UNACCEPTABLE_CREDENTIAL}, 0),
        ([], [up("bob", 0)], {"bob": ErrorCode.UNSUPPORTED_SASL_MECHANISM}, 0),
        ([down("alice", 3)], [], {"alice": ErrorCode.UNSUPPORTED_SASL_MECHANISM}, 0),
        ([], [up("bob", iterations=4095)], {"bob": ErrorCode.UNACCEPTABLE_CREDENTIAL}, 0),
        ([], [up("bob", iterations=16385)], {"bob": ErrorCode.UNACCEPTABLE_CREDENTIAL}, 0),
        ([], [up("bob", iterations=16384)], {"bob": 0}, 1),
        ([down("bob")], [], {"bob": ErrorCode.RESOURCE_NOT_FOUND}, 0),
        ([down("alice", 2)], [], {"alice": ErrorCode.RESOURCE_NOT_FOUND}, 0),
        ([down(), down()], [], {"alice": ErrorCode.DUPLICATE_RESOURCE}, 0),
        ([down()], [up("alice", 2)], {"alice": ErrorCode.DUPLICATE_RESOURCE}, 0),
        ([], [up("bob"), up("bob", 2), up("bob")], {"bob": ErrorCode.DUPLICATE_RESOURCE}, 0),
        (
            [down()],
            [up("bob", 9), up("carol")],
            {"alice": 0, "carol": 0, "bob": ErrorCode.UNSUPPORTED_SASL_MECHANISM},
            2,
        ),
    ],
)
def test_alter_scram_credentials_invalid_row_returns_error_for_that_user(deletions, upsertions, codes, count):
    errors, records = decide(deletions, upsertions)
    assert (errors, len(records)) == (codes, count)


def lists(ups: int, downs: int, salt_bytes: int = 4) -> tuple[list[Any], list[Any]]:
    every = [ScramCredentialUpsertion(f"u{n}", 1, 4096, b"s" * salt_bytes, b"p") for n in range(ups)]
    return [down(f"d{n}") for n in range(downs)], every


@pytest.mark.parametrize(
    ("most", "too_many", "code"),
    [
        (lists(10_000, 0), lists(10_001, 0), ErrorCode.POLICY_VIOLATION),
        (lists(9_000, 1_000), lists(9_000, 1_001), ErrorCode.POLICY_VIOLATION),
        (lists(0, 10_000), lists(0, 10_001), ErrorCode.POLICY_VIOLATION),
        (lists(8_100, 0, 1024), lists(8_200, 0, 1024), ErrorCode.RECORD_LIST_TOO_LARGE),
        (([], [up("\u00e9" * 2**21)]), ([], [up("\u00e9" * 2**22)]), ErrorCode.RECORD_LIST_TOO_LARGE),
    ],
    ids=["set", "both", "removed", "bytes", "bytes of characters"],
)
def test_alter_scram_credentials_above_batch_limit_fails_all_users(most: Any, too_many: Any, code: ErrorCode) -> None:
    image = MetadataImage(others={("scram", f"d{n}", 1): UserScramCredentialRecord() for n in range(11_000)})
    errors, records = decide(*most, image)
    assert (set(errors.values()), len(records)) == ({0}, len(most[0]) + len(most[1]))
    errors, records = decide(*too_many, image)
    assert (set(errors.values()), records) == ({code}, [])
    assert set(errors) == {x.name for x in (*too_many[0], *too_many[1])}


def test_alter_scram_credentials_of_many_users_yields():
    ups, downs = [up(f"u{number}") for number in range(250)], [down(f"d{number}") for number in range(250)]
    image = after(
        run_to_end(
            scram_credentials.alter_scram_credentials(MetadataImage(), AlterUserScramCredentialsRequest([], [up("d0")]))
        ).records
    )
    steps = scram_credentials.alter_scram_credentials(image, AlterUserScramCredentialsRequest(downs, ups))
    assert len(list(steps)) >= 2 * 250 + 200, "deletions, upsertions and errors"
    errors, records = decide(downs, ups, image)
    assert len(errors) == 500
    assert len(records) == 251


def test_alter_scram_credentials_deleted_credential_is_not_in_snapshot():
    _, records = decide([down()], [up("bob")])
    image = after(records, WITH_ALICE)
    assert ("scram", "alice", 1) not in image.others
    assert [x.name for x in image_records(image) if isinstance(x, UserScramCredentialRecord)] == ["bob"]


@pytest.mark.behaviour("S-325")
def test_parse_scram_option_password_returns_credential_record():
    made = scram_credentials.parse_scram_option("SCRAM-SHA-256=[name=alice,password=pencil,iterations=8192]", b"fresh")
    salted = salted_password(SCRAM_SHA_256, "pencil", b"fresh", 8192)
    assert made == scram_credentials.credential_record("alice", 1, salted, b"fresh", 8192)


@pytest.mark.behaviour("S-325")
def test_parse_scram_option_salt_and_salted_password_returns_credential_record():
    salt, salted = (b64encode(x).decode() for x in (b"salt", SALTED))
    made = scram_credentials.parse_scram_option(
        f'SCRAM-SHA-256=[name="alice",salt="{salt}",saltedpassword="{salted}"]', b"fresh"
    )
    assert made == scram_credentials.credential_record("alice", 1, SALTED, b"salt", 4096)


@pytest.mark.behaviour("S-325")
@pytest.mark.parametrize(
    "text",
    [
        "alice",
        "SCRAM-SHA-1=[name=alice,password=s3cret]",
        "SCRAM-SHA-256=name=alice,password=s3cret",
        "SCRAM-SHA-256=[password=s3cret]",
        "SCRAM-SHA-256=[name=alice]",
        "SCRAM-SHA-256=[name=alice,password=s3cret,iterations=100]",
        "SCRAM-SHA-256=[name=alice,password=s3cret,iterations=20000]",
        "SCRAM-SHA-256=[name=alice,password=s3cret,color=red]",
        "SCRAM-SHA-256=[name=alice,saltedpassword=AAAA]",
        "SCRAM-SHA-256=[name=alice,salt=***,saltedpassword=AAAA]",
    ],
)
def test_parse_scram_option_invalid_raises_without_password_in_message(text):
    with pytest.raises(scram_credentials.InvalidScramOption) as refused:
        scram_credentials.parse_scram_option(text, b"fresh")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("salt_bytes", "salted_bytes", "is_kept"), [(1024, 32, True), (1025, 32, False), (4, 1025, False)]
)
def test_alter_scram_credentials_too_long_salt_returns_unacceptable_credential(salt_bytes, salted_bytes, is_kept):
    """The salt is sent before authentication: an unlimited salt would be a large response to an unauthenticated
    client.
    """
    upsertion = ScramCredentialUpsertion("bob", 1, 4096, b"s" * salt_bytes, b"p" * salted_bytes)
    codes, records = decide([], [upsertion])
    assert codes == {"bob": 0 if is_kept else ErrorCode.UNACCEPTABLE_CREDENTIAL}
    assert len(records) == is_kept


def test_alter_scram_credentials_empty_salted_password_returns_unknown_server_error() -> None:
    """As in Java, which accepts no empty key."""
    fine = ScramCredentialUpsertion("f", 1, 4096, b"salt", b"p")
    empty = ScramCredentialUpsertion("e", 1, 4096, b"salt", b"")
    codes, records = decide([], [fine, empty])
    assert (codes, len(records)) == ({"f": 0, "e": ErrorCode.UNKNOWN_SERVER_ERROR}, 1)
    for twice in ([fine, fine], [fine, empty]):
        twice[0].name = twice[1].name = "t"
        for order in (twice, twice[::-1]):
            assert decide([], order)[0] == {"t": ErrorCode.DUPLICATE_RESOURCE}, "duplicates are checked first"
