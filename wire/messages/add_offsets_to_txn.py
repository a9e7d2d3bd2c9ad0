"""AddOffsetsToTxn (API 25): add the committed offsets of a group to a transaction."""

from __future__ import annotations

from typing import ClassVar

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, String, request, response


class AddOffsetsToTxnRequest(Message):
    """Request of a producer to add committed offsets of a group to its transaction."""

    SPEC: ClassVar[MessageSpec] = request(25, "0-4", "3+", "broker")
    """Version 2 brings PRODUCER_FENCED (KIP-588), 3 is flexible, 4 brings TRANSACTION_ABORTABLE (KIP-890). Producers
    that use transaction version 2 do not send this request: TxnOffsetCommit adds the partition itself.

    Flow: A producer sends it to the transaction coordinator before TxnOffsetCommit. The coordinator adds the partition
    of `__consumer_offsets` that has the group to the transaction. From transaction version 2 on it is not needed.
    """
    transactional_id: String = ""
    """`transactional.id` of the producer. It selects the transaction coordinator."""
    producer_id: Int64 = 0
    """Producer id from the InitProducerId response. Another one than that of the transaction is rejected with
    INVALID_PRODUCER_ID_MAPPING.
    """
    producer_epoch: Int16 = 0
    """Producer epoch from the InitProducerId response. Another one than the current epoch is rejected with
    PRODUCER_FENCED, up to version 1 with INVALID_PRODUCER_EPOCH.
    """
    group_id: String = ""
    """`group.id` of the consumer that read the input. The partition of `__consumer_offsets` that holds its offsets is
    added to the transaction.
    """


class AddOffsetsToTxnResponse(Message):
    """Error code of AddOffsetsToTxn; 0 if offsets of the group may be committed in the transaction."""

    SPEC: ClassVar[MessageSpec] = response(25, "0-4", "3+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0, or INVALID_PRODUCER_ID_MAPPING and PRODUCER_FENCED (the producer ends), CONCURRENT_TRANSACTIONS and
    COORDINATOR_LOAD_IN_PROGRESS (retry), NOT_COORDINATOR (find the coordinator again), GROUP_AUTHORIZATION_FAILED.
    """
