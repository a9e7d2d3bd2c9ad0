"""EndTxn (API 26): commit or abort a transaction (KIP-98)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ottla.wire.codec.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    MessageSpec,
    String,
    request,
    response,
    wire_field,
)


class EndTxnRequest(Message):
    """Request of a producer to the transaction coordinator to commit or abort its transaction."""

    SPEC: ClassVar[MessageSpec] = request(26, "0-5", "3+", "broker")
    """Version 2 brings PRODUCER_FENCED (KIP-588), 3 is flexible, 4 brings TRANSACTION_ABORTABLE, and from version 5 on
    each transaction has an epoch of its own (transaction version 2, KIP-890).

    Flow: A producer sends it to its transaction coordinator. The coordinator persists the decision and responds, then
    sends WriteTxnMarkers to the leaders of all partitions of the transaction. The transaction is complete when all
    markers are written.

    Errors: INVALID_PRODUCER_EPOCH: A newer producer has fenced this one, up to version 1; later versions have
    PRODUCER_FENCED.
    """
    transactional_id: String = ""
    """`transactional.id` of the producer."""
    producer_id: Int64 = 0
    """Id of the producer. Another one than that of the transaction is rejected with INVALID_PRODUCER_ID_MAPPING."""
    producer_epoch: Int16 = 0
    """Epoch of the producer. Another one than the current epoch is rejected with PRODUCER_FENCED; in version 5 the
    epoch before is accepted for a repeated request.
    """
    committed: Bool = False
    """True to commit, false to abort."""


class EndTxnResponse(Message):
    """Error code of EndTxn; 0 once the decision is stored. Markers are written to the partitions later."""

    SPEC: ClassVar[MessageSpec] = response(26, "0-5", "3+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0 if the decision is stored. CONCURRENT_TRANSACTIONS: retry. INVALID_TXN_STATE: no open transaction (version 5
    can abort without one), or it ended the other way. PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING: the producer ends.
    NOT_COORDINATOR: find the coordinator.
    """
    producer_id: Annotated[int, wire_field("int64", "5+", ignorable=True)] = -1
    """Producer id for the next transaction; a new one when the epochs are used up. -1 with an error."""
    producer_epoch: Annotated[int, wire_field("int16", "5+", ignorable=True)] = -1
    """Epoch for the next transaction: one higher than that of the ended one, or 0 of a new producer id. -1 with an
    error.
    """
