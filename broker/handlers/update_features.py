"""UpdateFeatures (57), v0-2: move the cluster's feature levels; handed to the controller.

Source: ``FeatureControlManager.updateFeatures`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.messages.update_features import UpdateFeaturesRequest


def handle(context: Context, request: UpdateFeaturesRequest) -> Answer:
    """Ask the controller."""
    return context.services.admin.submit(request, context.version)
