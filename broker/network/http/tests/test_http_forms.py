"""Forms in the body of a request."""

from __future__ import annotations

import pytest

from ottla.broker.config.limits import MAX_HTTP_FORM_FIELDS
from ottla.broker.network.http.http_messages import HttpRequest, parse_fields


def parse(body: bytes) -> tuple[dict[str, str], int]:
    """Return the fields, and the number of pauses."""
    job, pauses = HttpRequest("POST", "/", {}, body=body).parse_form(), 0
    while True:
        try:
            next(job)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"a=1&b=2&a=3",
        b"a&=&&b==",
        b"a%3D=%26+%2B&%",
        b"a=%4&b=%zz&c=%C3%A9&d=%ff&%C3%A9=1",
        b"a=" + b"%C3%A9" * 20_000,
        b"a=x" + b"%C3%A9" * 20_000 + b"%C",
        b"a=xx" + b"%41" * 40_000 + b"&b=" + b"+" * 40_000,
        b"&".join(b"%d=" % n for n in range(MAX_HTTP_FORM_FIELDS)),
        b"&".join(b"%d=" % n for n in range(MAX_HTTP_FORM_FIELDS + 1)),
    ],
)
def test_form_has_the_fields_that_a_query_with_its_text_has(body: bytes) -> None:
    assert parse(body)[0] == parse_fields(body.decode())


def test_large_form_is_decoded_with_pauses() -> None:
    assert parse(b"a=" + b"%41" * 600_000)[1] > 100
