"""Interface of a client's request that a broker forwards to the active controller (KIP-590)."""

from __future__ import annotations

from typing import Protocol

from ottla.broker.api_spec import ApiSpec
from ottla.broker.quotas.controller_mutation_quota import ControllerMutationQuota
from ottla.broker.requests.peer import Peer
from ottla.controller.metadata.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.codec.primitives import Buffer


class ForwardableRequest(Protocol):
    """Interface of a client's request to forward in an Envelope; implemented by the dispatcher's `RequestContext`."""

    version: int
    peer: Peer
    frame: Buffer

    @property
    def spec(self) -> ApiSpec:
        """Registry entry of the request's API."""

    @property
    def has_authorizer(self) -> bool:
        """True if this broker has an authorizer."""

    @property
    def image(self) -> MetadataImage:
        """Metadata image that this broker has applied last; newer ones may be committed."""

    def may(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether the client's principal is authorized for an operation on a resource."""

    def mutation_quota(self) -> ControllerMutationQuota | None:
        """Return the controller mutation quota for partitions that the request creates or deletes; None without one."""
