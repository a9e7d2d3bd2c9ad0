"""Subscriptions to metadata images: a listener is called with the whole image first, then with each delta in order.

Source: ``MetadataLoader.installPublishers`` and ``MetadataPublisher.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.controller.metadata.delta import MetadataDelta, MetadataListener
from ottla.controller.metadata.image import MetadataImage

logger = logging.getLogger("ottla.controller")


class MetadataSubscriptions:
    """Listeners to the images of one source: the committed images of a controller, or the applied ones of a broker."""

    def __init__(self, current_image: Callable[[], MetadataImage]) -> None:
        """Create without listeners; ``current_image`` returns the image that was published last."""
        self._current_image = current_image
        self._listeners: dict[object, MetadataListener] = {}

    def subscribe(self, listener: MetadataListener) -> Callable[[], None]:
        """Call ``listener`` with the whole image now, and with each later publication.

        Before the first publication there is no image: then the listener is not called now, and the delta of the first
        publication is the whole image. Listeners are called in the order of their subscriptions. A listener that
        subscribes during a publication is not called with that publication again.

        Returns:
            A function that ends the subscription: ``listener`` is not called after it returns.

        Raises:
            Exception: as ``listener`` with the whole image; it is not subscribed then.
        """
        image = self._current_image()
        if image.offset >= 0:
            listener(image, MetadataDelta.from_empty(image))
        subscription = object()
        self._listeners[subscription] = listener

        def unsubscribe() -> None:
            self._listeners.pop(subscription, None)

        return unsubscribe

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Call each listener with a new image and its delta, in the order of subscription, before this call returns.

        An `OSError` of a listener is logged, and the others are called.

        Raises:
            Exception: any other error of a listener; those after it are not called. It stops the node, as every broken
                invariant.
        """
        for subscription, listener in list(self._listeners.items()):
            if subscription not in self._listeners:
                continue
            try:
                listener(image, delta)
            except OSError:  # of a file of the listener; the metadata directory is not affected
                logger.exception("Error while publishing metadata at offset %d", image.offset)
