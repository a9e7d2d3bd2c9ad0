"""Authorization before the handler: applies the authorization rules of an API to a request.

A request without a permission that it needs as a whole gets an error response. From a request that names resources, the
denied ones are removed before the handler is called, and their rows are appended to the handler's response.

Source: ``AuthHelper.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ottla.broker.api_spec import ApiSpec, CreatedConfigsRule, Permission, RequestRule
from ottla.broker.requests.error_responses import build_error_response
from ottla.broker.security.authz.resource_rules import (
    DENIAL_ERRORS,
    AuthorizableRequest,
    hide_created_configs,
    split_request,
)
from ottla.controller.metadata.acl import CLUSTER_NAME, ResourceType
from ottla.jobs.job import Job, as_job
from ottla.wire.codec.schema import Message

A = TypeVar("A", bound=AuthorizableRequest)
AuthorizedHandler = Callable[[A, Any], Any]
"""Request handler: returns a response, or a job that returns one."""


def is_authorized_by_handler(spec: ApiSpec, *, at_controller: bool) -> bool:
    """Return True if an API has no rule to apply before its handler, which checks its permissions, if any, itself.

    ``at_controller``: the rules of the controller's listener apply, else those of a broker's listener.
    """
    return all(isinstance(rule, Permission) for rule in spec.endpoint(at_controller=at_controller).authorization)


def authorize_and_handle(context: A, request: Any, handler: AuthorizedHandler[A], *, at_controller: bool) -> Any:
    """Call the handler with the authorized part of a request; return its response, or a job that returns it.

    The handler is called even if all resources in the request are denied; their error rows are added to its response.
    If the client lacks a permission for the request as a whole, the handler is not called, and an error response with
    the error of `DENIAL_ERRORS` is returned. ``at_controller``: the rules of the controller's listener apply, else
    those of a broker's listener.
    """
    spec, splits = context.spec, False
    for rule in spec.endpoint(at_controller=at_controller).authorization:
        if isinstance(rule, RequestRule):
            name = CLUSTER_NAME if rule.field is None else getattr(request, rule.field)
            if not context.may(rule.operation, rule.resource, name):
                message = f"Request {spec.key.name} needs {rule.operation.name} permission."
                return build_error_response(
                    context,
                    request,
                    DENIAL_ERRORS[rule.resource],
                    message if rule.resource is ResourceType.CLUSTER else None,
                )
        elif not isinstance(rule, Permission):
            splits = True
    if not splits:
        return handler(context, request)
    return _handle_allowed(context, request, handler, at_controller=at_controller)


def _handle_allowed(asking: A, request: Any, handler: AuthorizedHandler[A], *, at_controller: bool) -> Job[Any]:
    hides_configs, denied = False, list[Any]()
    for rule in asking.spec.endpoint(at_controller=at_controller).authorization:
        request, rows = yield from split_request(asking, request, rule)
        denied += rows
        hides_configs |= isinstance(rule, CreatedConfigsRule)
    answer = yield from as_job(handler(asking, request))
    if isinstance(answer, Message):
        yield from _append_denied_rows(asking, answer, denied, hides_configs=hides_configs)
    return answer


def _append_denied_rows(
    asking: AuthorizableRequest, answer: Message, denied: list[Any], *, hides_configs: bool
) -> Job[None]:
    """Append the rows of denied resources to the handler's response, as a job.

    ``hides_configs``: also hide the configs of created topics that the client may not describe. A response with a
    top-level error is left unchanged.
    """
    if getattr(answer, "error_code", 0):
        return
    rows = getattr(answer, asking.spec.error_response.results[0].response_list)
    if hides_configs:
        yield from hide_created_configs(asking, rows)
    for row in denied:
        rows.append(row)
        yield None
