"""Reference page of each API, from its messages, its `ApiSpec` and an example frame of the encoder.

Fields, version history, flow and errors come from the attribute docstrings of the message module
(`ottla.wire.codec.explain`); versions, listeners, quota, forwarding and permissions from `ApiSpec`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from devtools.docs.example_messages import example_message
from devtools.docs.message_layout import annotated_bytes, field_list, wrap
from ottla.broker.api_spec import ApiSpec, Endpoint, MutationQuota, Permission, QuotaKind
from ottla.controller.metadata.acl import ResourceType
from ottla.wire.api_keys import ApiKey, request_class, request_spec, response_class
from ottla.wire.codec.explain import explain
from ottla.wire.codec.schema import Message, Versions, fields_of
from ottla.wire.errors import ErrorCode
from ottla.wire.field_dump import request_spans, response_spans
from ottla.wire.framing import encode_request, encode_response

NOTE = "<!-- written by python -m devtools.docs.reference -->"
CODE = re.compile(r"\b[A-Z][A-Z_]{4,}\b")
SENTENCE_END = re.compile(r"(?<=[.;]) (?=[A-Z0-9`-])")
CODES = frozenset(code.name for code in ErrorCode) - {"NONE"}
DENIALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
EXAMPLE_CORRELATION_ID = 7
QUOTAS = {
    QuotaKind.REQUEST: "Time on the event loop counts towards `request_percentage`.",
    QuotaKind.PRODUCE: "Bytes of records count towards `producer_byte_rate`, time towards `request_percentage`.",
    QuotaKind.FETCH: "Bytes of records count towards `consumer_byte_rate`, time towards `request_percentage`. Above one "
    "of them, the response has no records.",
    QuotaKind.SHARE_FETCH: "Bytes of acquired records count towards `consumer_byte_rate`, time towards "
    "`request_percentage`.",
    QuotaKind.EXEMPT: "None: requests between brokers are exempt.",
}


def page_name(key: ApiKey) -> str:
    """Return the name of the page of an API below `docs/reference`."""
    return f"apis/{key.api_name}.md"


def structs_of(cls: type[Message]) -> Iterator[type[Message]]:
    """Yield a message class and the classes of the structs inside it."""
    yield cls
    for spec in fields_of(cls):
        if spec.struct is not None:
            yield from structs_of(spec.struct)


def error_texts(key: ApiKey) -> dict[str, list[str]]:
    """Return the error codes of an API with the sentences about them: section ``Errors``, then those of the fields."""
    request, response = request_class(key), response_class(key)
    out = {code: [text] for code, text in explain(request).errors.items()}
    explained = set(out)
    for cls in dict.fromkeys((*structs_of(request), *structs_of(response))):
        for name, text in explain(cls).fields.items():
            for sentence in SENTENCE_END.split(text):
                for code in CODES.intersection(CODE.findall(sentence)) - explained:
                    out.setdefault(code, []).append(f"{sentence.rstrip(';.')} (`{name}`).")
    return {code: list(dict.fromkeys(texts)) for code, texts in sorted(out.items())}


def _permission(permission: Permission) -> str:
    return f"{permission.operation.name} on {permission.resource.name}".replace("_", " ").title().replace(" On ", " on ")


def _endpoint(name: str, endpoint: Endpoint) -> Iterator[str]:
    permissions = [p for rule in endpoint.authorization for p in rule.permissions]
    names = ", ".join(dict.fromkeys(map(_permission, permissions)))
    if not permissions:
        names = "no permission is checked" if name == "broker" else "no permission is checked there"
    yield from wrap(f"**At {name} listeners**: {names}.", 2, "- ")


def _denials(spec: ApiSpec) -> dict[str, str]:
    """Return the error codes of a principal without permission."""
    out: dict[str, list[str]] = {}
    for permission in spec.permissions:
        out.setdefault(DENIALS[permission.resource].name, []).append(_permission(permission))
    return {c: f"The principal has none of: {', '.join(dict.fromkeys(names))}." for c, names in out.items()}


def _facts(spec: ApiSpec) -> Iterator[str]:
    """Yield the facts of an `ApiSpec`: listeners, authorization, forwarding, quota."""
    schema = request_spec(spec.key)
    newest = schema.versions.high - (1 if schema.latest_unstable else 0)
    yield f"- **API key**: {int(spec.key)}"
    supported = spec.min_version if spec.oldest_supported is None else spec.oldest_supported
    note = "" if supported == spec.min_version else f"; versions below {supported} close the connection"
    text = f"**Versions**: {spec.min_version} to {spec.max_version}{note}. Schema of Kafka 4.3.1: "
    flexible = schema.flexible
    first = f"flexible (KIP-482) from version {flexible.low}" if flexible.low <= spec.max_version else "not flexible"
    yield from wrap(f"{text}{schema.versions.low} to {newest}, {first}.", 2, "- ")
    if spec.broker is not None:
        yield from _endpoint("broker", spec.broker)
    if spec.controller is not None:
        yield from _endpoint("controller", spec.controller)
    if spec.forwarding is not None and spec.broker is not None:
        text = f"**Forwarding**: a broker forwards the request in an Envelope (KIP-590) to {spec.forwarding.target.value}."
        yield from wrap(text, 2, "- ")
    elif spec.forwarding is None or spec.broker is None:
        yield "- **Forwarding**: none."
    if isinstance(spec.quota, MutationQuota):
        text = f"Time counts towards `request_percentage`, partitions towards `controller_mutation_rate` (KIP-599); from "
        text += f"version {spec.quota.strict_since} on, a request above the latter is rejected."
    else:
        text = QUOTAS[spec.quota]
    yield from wrap(f"**Quota**: {text}", 2, "- ")
    if spec.required_config is not None:
        yield from wrap(f"**Advertised** only if `{spec.required_config}` is set.", 2, "- ")


def _errors(spec: ApiSpec) -> Iterator[str]:
    texts = error_texts(spec.key)
    for code, text in _denials(spec).items():
        texts.setdefault(code, [text])
    if isinstance(spec.quota, MutationQuota):
        quota = f"The quota of controller mutations is exceeded, from version {spec.quota.strict_since} on."
        texts.setdefault("THROTTLING_QUOTA_EXCEEDED", [quota])
    if not texts:
        yield "The response has no error codes of its own."
    for code in sorted(texts):
        yield from wrap(f"`{code}` ({int(ErrorCode[code])}): {' '.join(texts[code])}", 2, "- ")


def example_frames(spec: ApiSpec) -> tuple[bytes, bytes]:
    """Return an example request and response of the newest version, with their sizes and headers."""
    key, version = spec.key, spec.max_version
    request = example_message(request_class(key), version)
    response = example_message(response_class(key), version)
    frame = encode_request(key, version, EXAMPLE_CORRELATION_ID, "app-1", request)
    chunks = encode_response(key, version, EXAMPLE_CORRELATION_ID, response)
    return bytes(frame), b"".join(bytes(chunk) for chunk in chunks)


def _examples(spec: ApiSpec) -> Iterator[str]:
    key, version = spec.key, spec.max_version
    request, response = example_frames(spec)
    yield from wrap(
        f"Frames of version {version}, written by the encoder of `ottla.wire`. Columns: position, bytes in hexadecimal "
        "(`..`: more bytes follow), field and value. `tags` is the number of tagged fields. The values show the layout; "
        "`ottla decode` prints any captured frame in this form."
    )
    yield from ("", f"Request, {len(request)} bytes:", "")
    yield from annotated_bytes(request_spans(request), request)
    yield from ("", f"Response, {len(response)} bytes:", "")
    yield from annotated_bytes(response_spans(key, version, response), response)


def purpose(key: ApiKey) -> str:
    """Return the purpose of an API: the first line of its message module, without the name."""
    doc = sys.modules[request_class(key).__module__].__doc__ or ""
    text = " ".join(doc.split()).partition("): ")[2]
    return text[:1].upper() + text[1:]


def api_page(spec: ApiSpec) -> str:
    """Return the page of an API."""
    request, response = request_class(spec.key), response_class(spec.key)
    served = Versions(spec.min_version, spec.max_version)
    explanation = explain(request)
    lines = [f"# {spec.key.api_name}", NOTE, "", *wrap(purpose(spec.key)), ""]
    lines += [*wrap(f"Request: {explanation.summary} Response: {explain(response).summary}"), ""]
    lines += [*_facts(spec), ""]
    if explanation.flow:
        lines += ["## Flow", "", *wrap(explanation.flow), ""]
    versions = " ".join(filter(None, (explanation.versions, explain(response).versions)))
    if versions:
        lines += ["## Versions", "", *wrap(versions), ""]
    for title, cls in (("Request fields", request), ("Response fields", response)):
        fields = list(field_list(cls, served)) or ["None."]
        lines += [f"## {title}", "", *fields, ""]
    lines += ["## Error codes", "", *_errors(spec), ""]
    lines += ["## Example", "", *_examples(spec)]
    return "\n".join(lines) + "\n"
