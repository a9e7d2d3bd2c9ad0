"""DescribeClientQuotas (48), v0-1: quotas of the entities a filter means.

Behaviour: components match a name, the default, or any name of a kind; strict leaves out entities of more kinds.

Source: ``KafkaApis.handleDescribeClientQuotasRequest``, ``ClientQuotasImage.describe`` (apache/kafka 4.3.1).

From KIP-546.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.controller.control.client_quotas import filter_from_request, matching_quotas
from ottla.jobs.sequences import sort_job
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


def handle(context: RequestContext, request: DescribeClientQuotasRequest) -> ResponseJob:
    """Look through all quotas."""
    try:
        quotas = yield from matching_quotas(context.image, filter_from_request(request))
    except ProtocolError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    rows = []
    for entity in (yield from sort_job(quotas, key=repr)):
        told = [EntityData(kind, name) for kind, name in entity]
        rows.append(EntryData(told, [ValueData(key, value) for key, value in sorted(quotas[entity].items())]))
        yield None
    return DescribeClientQuotasResponse(error_message=None, entries=rows)
