"""DescribeClientQuotas (48), v0-1: client quotas of the entities that match a filter.

Behaviour: a component of the filter matches an exact name, the default entity, or any name of an entity type; strict
excludes entities with further entity types.

Source: ``KafkaApis.handleDescribeClientQuotasRequest``, ``ClientQuotasImage.describe`` (apache/kafka 4.3.1).
From KIP-546.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.requests.error_responses import with_error_response
from ottla.controller.control.client_quotas import filter_from_request, matching_quotas
from ottla.jobs.sequences import sort_job
from ottla.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


@with_error_response
def handle(context: RequestContext, request: DescribeClientQuotasRequest) -> ResponseJob:
    """Return the quotas of the metadata image whose entities match the filter, sorted by entity.

    An invalid filter gives an error response.
    """
    quotas = yield from matching_quotas(context.image, filter_from_request(request))
    rows = []
    for entity in (yield from sort_job(quotas, key=repr)):
        components = [EntityData(kind, name) for kind, name in entity]
        rows.append(EntryData(components, [ValueData(key, value) for key, value in sorted(quotas[entity].items())]))
        yield None
    return DescribeClientQuotasResponse(error_message=None, entries=rows)
