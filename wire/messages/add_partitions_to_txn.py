"""AddPartitionsToTxn (API 24): add partitions to a transaction, or verify them."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class AddPartitionsToTxnTopic(Message):
    """Topic in an AddPartitionsToTxn request, with the partitions to add or verify."""

    name: String = ""
    """Topic name. An internal topic is rejected with TOPIC_AUTHORIZATION_FAILED if a producer names it."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the partitions in this topic."""


class AddPartitionsToTxnTransaction(Message):
    """Transaction in a request of a broker (version 4 on), with the partitions to add or verify."""

    transactional_id: Annotated[str, wire_field("string", "4+")] = ""
    """`transactional.id` of the producer. An empty one is rejected with INVALID_REQUEST."""
    producer_id: Annotated[int, wire_field("int64", "4+")] = 0
    """Producer id in the batch that the broker received. Another one than that of the transaction is rejected with
    INVALID_PRODUCER_ID_MAPPING.
    """
    producer_epoch: Annotated[int, wire_field("int16", "4+")] = 0
    """Producer epoch in the batch that the broker received. Another one than the current epoch is rejected with
    PRODUCER_FENCED.
    """
    verify_only: Annotated[bool, wire_field("bool", "4+")] = False
    """True to check that the partitions belong to the transaction and add none: TRANSACTION_ABORTABLE is returned for
    the others. False to add them, for producers that use transaction version 2.
    """
    topics: Annotated[list[AddPartitionsToTxnTopic], wire_field("[]struct", "4+")] = field(default_factory=list)
    """Partitions to add or verify."""


class AddPartitionsToTxnRequest(Message):
    """Request to add partitions to transactions, or to verify that they were added."""

    SPEC: ClassVar[MessageSpec] = request(24, "0-5", "3+", "broker")
    """Producers send versions 0 to 3 for one transaction, brokers versions 4 and 5 for several. Version 2 brings
    PRODUCER_FENCED (KIP-588), 3 is flexible, 4 adds batches and verification, and 5 brings TRANSACTION_ABORTABLE
    (KIP-890).

    Flow: A producer sends it to the transaction coordinator before its first batch to a partition in a transaction. The
    coordinator persists the partition in `__transaction_state`. From transaction version 2 on (KIP-890) the producer
    leaves this to the leader, which sends the request itself, or only verifies that the partition is part of the
    transaction.
    """
    transactions: Annotated[list[AddPartitionsToTxnTransaction], wire_field("[]struct", "4+")] = field(
        default_factory=list
    )
    """Transactions of a request of a broker, from version 4 on. Each has its own result."""
    v3_and_below_transactional_id: Annotated[str, wire_field("string", "0-3")] = ""
    """`transactional.id` of the producer, up to version 3."""
    v3_and_below_producer_id: Annotated[int, wire_field("int64", "0-3")] = 0
    """Producer id from the InitProducerId response, up to version 3."""
    v3_and_below_producer_epoch: Annotated[int, wire_field("int16", "0-3")] = 0
    """Producer epoch from the InitProducerId response, up to version 3. Another one than the current epoch is rejected
    with PRODUCER_FENCED, in versions 0 and 1 with INVALID_PRODUCER_EPOCH.
    """
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], wire_field("[]struct", "0-3")] = field(
        default_factory=list
    )
    """Partitions to add before records are produced to them, up to version 3."""


class AddPartitionsToTxnPartitionResult(Message):
    """Error code of a partition; 0 if it was added to the transaction, or is verified to be in it."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    partition_error_code: Int16 = 0
    """0, an error of the transaction (the same for all partitions), or of the partition: UNKNOWN_TOPIC_OR_PARTITION,
    TOPIC_AUTHORIZATION_FAILED. If one partition fails, none is added, and the others have OPERATION_NOT_ATTEMPTED.
    """


class AddPartitionsToTxnTopicResult(Message):
    """Topic in an AddPartitionsToTxn response, with an error code for each partition."""

    name: String = ""
    """Topic name."""
    results_by_partition: Annotated[list[AddPartitionsToTxnPartitionResult], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Results of the partitions."""


class AddPartitionsToTxnResult(Message):
    """Transaction in a response to a broker (version 4 on), with an error code for each partition."""

    transactional_id: Annotated[str, wire_field("string", "4+")] = ""
    """`transactional.id` from the request."""
    topic_results: Annotated[list[AddPartitionsToTxnTopicResult], wire_field("[]struct", "4+")] = field(
        default_factory=list
    )
    """Results by topic."""


class AddPartitionsToTxnResponse(Message):
    """Response to AddPartitionsToTxn: an error code for each partition of each transaction."""

    SPEC: ClassVar[MessageSpec] = response(24, "0-5", "3+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Annotated[int, wire_field("int16", "4+", ignorable=True)] = 0
    """Error of the whole request, from version 4 on: CLUSTER_AUTHORIZATION_FAILED if the sender is no broker. 0 if the
    partitions have their own.
    """
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], wire_field("[]struct", "4+")] = field(
        default_factory=list
    )
    """Results by transaction, from version 4 on."""
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], wire_field("[]struct", "0-3")] = (
        field(default_factory=list)
    )
    """Results by topic, up to version 3."""
