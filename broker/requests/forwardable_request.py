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
    """A client's request to forward: the dispatcher's `RequestContext`."""

    version: int
    peer: Peer
    frame: Buffer

    @property
    def spec(self) -> ApiSpec:
        """The API of the request."""

    @property
    def has_authorizer(self) -> bool:
        """True if this broker has an authorizer."""

    @property
    def image(self) -> MetadataImage:
        """The newest committed metadata."""

    def may(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether the principal of the request is allowed an operation."""

    def mutation_quota(self) -> ControllerMutationQuota | None:
        """Return the quota that counts created and deleted partitions; None: no quota is configured."""
