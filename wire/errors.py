"""Error codes of responses with their texts, which of them are retriable, and the exceptions of wire formats.

Source: ``Errors.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from enum import IntEnum


class WireError(Exception):
    """Bytes from a peer or a file violate the format or a limit, or a message cannot be encoded in a version.

    For bytes from a peer the connection is closed; the node continues.
    """


class ErrorCode(IntEnum):
    """Error code in a response; unlike a `WireError` it closes no connection, but that of a failed authentication."""

    UNKNOWN_SERVER_ERROR = -1
    """Error without a code of its own, mostly a fault of the server; the log of the server has the details."""
    NONE = 0
    """Success."""
    OFFSET_OUT_OF_RANGE = 1
    """The offset is below the log start offset or above the end of the log."""
    CORRUPT_MESSAGE = 2
    """Records have a wrong CRC, size or format."""
    UNKNOWN_TOPIC_OR_PARTITION = 3
    """The topic or partition does not exist, or the principal may not know that it exists."""
    INVALID_FETCH_SIZE = 4
    """The maximum size of a fetch is negative or otherwise invalid."""
    LEADER_NOT_AVAILABLE = 5
    """The partition has no leader: none of its eligible replicas is online, or the election is not done."""
    NOT_LEADER_OR_FOLLOWER = 6
    """The broker does not lead the partition, or has no replica of it: refresh the metadata."""
    REQUEST_TIMED_OUT = 7
    """The time limit of the request has passed; the operation may still complete."""
    BROKER_NOT_AVAILABLE = 8
    """A broker is not alive or cannot be reached."""
    REPLICA_NOT_AVAILABLE = 9
    """The broker has no replica of the partition."""
    MESSAGE_TOO_LARGE = 10
    """A batch is larger than `max.message.bytes` of the topic."""
    STALE_CONTROLLER_EPOCH = 11
    """The controller epoch of the request is older than the current one."""
    OFFSET_METADATA_TOO_LARGE = 12
    """The metadata of a committed offset is longer than `offset.metadata.max.bytes`."""
    NETWORK_EXCEPTION = 13
    """The connection was lost before the response arrived."""
    COORDINATOR_LOAD_IN_PROGRESS = 14
    """The coordinator is loading its partition of the internal topic: retry."""
    COORDINATOR_NOT_AVAILABLE = 15
    """The internal topic of the coordinator does not exist yet, has no leader, or did not accept a record: retry."""
    NOT_COORDINATOR = 16
    """The broker is not the coordinator of the group, transactional id or share partition: send FindCoordinator."""
    INVALID_TOPIC_EXCEPTION = 17
    """The topic name is invalid, or the operation is not permitted on an internal topic."""
    RECORD_LIST_TOO_LARGE = 18
    """The batch of records is larger than a segment or than the metadata log accepts."""
    NOT_ENOUGH_REPLICAS = 19
    """The ISR is smaller than `min.insync.replicas`; the records were not appended."""
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    """The ISR became smaller than `min.insync.replicas` after the append."""
    INVALID_REQUIRED_ACKS = 21
    """`acks` is not -1, 0 or 1."""
    ILLEGAL_GENERATION = 22
    """The generation of the member is not the current one of the group: join again."""
    INCONSISTENT_GROUP_PROTOCOL = 23
    """The member supports no protocol that all other members support, or its type differs."""
    INVALID_GROUP_ID = 24
    """The group id is empty or invalid."""
    UNKNOWN_MEMBER_ID = 25
    """The group has no member of this id, because it left or its session expired: join again."""
    INVALID_SESSION_TIMEOUT = 26
    """The session timeout is outside `group.min.session.timeout.ms` to `group.max.session.timeout.ms`."""
    REBALANCE_IN_PROGRESS = 27
    """The group rebalances: join again."""
    INVALID_COMMIT_OFFSET_SIZE = 28
    """The committed offset is too large to be stored."""
    TOPIC_AUTHORIZATION_FAILED = 29
    """The principal lacks the permission for the topic."""
    GROUP_AUTHORIZATION_FAILED = 30
    """The principal lacks the permission for the group."""
    CLUSTER_AUTHORIZATION_FAILED = 31
    """The principal lacks the permission for the cluster."""
    INVALID_TIMESTAMP = 32
    """The timestamp of a record is outside the limits of the topic."""
    UNSUPPORTED_SASL_MECHANISM = 33
    """The listener does not enable this SASL mechanism."""
    ILLEGAL_SASL_STATE = 34
    """The request does not fit the state of the SASL exchange."""
    UNSUPPORTED_VERSION = 35
    """The version of the API, or a feature that the request uses, is not supported."""
    TOPIC_ALREADY_EXISTS = 36
    """A topic of this name exists."""
    INVALID_PARTITIONS = 37
    """The number of partitions is not positive, or not larger than before."""
    INVALID_REPLICATION_FACTOR = 38
    """The replication factor is below 1, above the number of usable brokers, or not the same."""
    INVALID_REPLICA_ASSIGNMENT = 39
    """The assignment names an unknown broker, a broker twice, or partitions with gaps."""
    INVALID_CONFIG = 40
    """The name or value of a setting is invalid."""
    NOT_CONTROLLER = 41
    """The node is not the active controller."""
    INVALID_REQUEST = 42
    """Fields of the request contradict each other or have a value that is not permitted."""
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    """The message format of the topic does not support the operation."""
    POLICY_VIOLATION = 44
    """A limit or policy of the cluster forbids the change."""
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    """The sequence number of the batch does not follow that of the last batch of the producer."""
    DUPLICATE_SEQUENCE_NUMBER = 46
    """The batch has been appended before."""
    INVALID_PRODUCER_EPOCH = 47
    """The producer epoch is older than the current one: a newer producer has fenced this one."""
    INVALID_TXN_STATE = 48
    """The state of the transaction does not permit the operation."""
    INVALID_PRODUCER_ID_MAPPING = 49
    """The transactional id belongs to another producer id, or has expired."""
    INVALID_TRANSACTION_TIMEOUT = 50
    """The transaction timeout is not positive, or above `transaction.max.timeout.ms`."""
    CONCURRENT_TRANSACTIONS = 51
    """The previous operation of the transaction is still in progress: retry."""
    TRANSACTION_COORDINATOR_FENCED = 52
    """A newer transaction coordinator has written to the partition."""
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    """The principal lacks the permission for the transactional id."""
    SECURITY_DISABLED = 54
    """No authorizer is configured (`authorizer.class.name`)."""
    OPERATION_NOT_ATTEMPTED = 55
    """The operation was not attempted, because another one of the request failed."""
    KAFKA_STORAGE_ERROR = 56
    """The log directory of the partition has failed."""
    LOG_DIR_NOT_FOUND = 57
    """`log.dirs` of the broker does not have the directory."""
    SASL_AUTHENTICATION_FAILED = 58
    """The credentials are wrong, or the token is invalid."""
    UNKNOWN_PRODUCER_ID = 59
    """The partition has no state of this producer."""
    REASSIGNMENT_IN_PROGRESS = 60
    """A reassignment of the partition is in progress."""
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    """Delegation tokens are disabled, because `delegation.token.secret.key` is not set."""
    DELEGATION_TOKEN_NOT_FOUND = 62
    """No delegation token has this HMAC."""
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    """The principal is neither owner nor renewer of the token."""
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    """The connection is not authenticated, or is authenticated by a delegation token."""
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    """The principal lacks the permission for delegation tokens of that user."""
    DELEGATION_TOKEN_EXPIRED = 66
    """The delegation token has expired."""
    INVALID_PRINCIPAL_TYPE = 67
    """The type of the principal is not `User`."""
    NON_EMPTY_GROUP = 68
    """The group has members."""
    GROUP_ID_NOT_FOUND = 69
    """The group does not exist, or is not of a type that the API handles."""
    FETCH_SESSION_ID_NOT_FOUND = 70
    """The broker has no such fetch session: start a new one."""
    INVALID_FETCH_SESSION_EPOCH = 71
    """The request is not the next one of its fetch session: start a new one."""
    LISTENER_NOT_FOUND = 72
    """The leader has no listener of the name that the request came in on."""
    TOPIC_DELETION_DISABLED = 73
    """`delete.topic.enable` is false."""
    FENCED_LEADER_EPOCH = 74
    """The leader epoch of the request is older than the current one."""
    UNKNOWN_LEADER_EPOCH = 75
    """The leader epoch of the request is newer than the one that the node knows: retry."""
    UNSUPPORTED_COMPRESSION_TYPE = 76
    """The compression type is unknown, or not permitted in this version."""
    STALE_BROKER_EPOCH = 77
    """The broker epoch is not that of the current registration."""
    OFFSET_NOT_AVAILABLE = 78
    """The new leader does not know its high watermark yet: retry."""
    MEMBER_ID_REQUIRED = 79
    """The member has no id yet: join again with the id in the response."""
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    """The preferred leader is offline or not in the ISR."""
    GROUP_MAX_SIZE_REACHED = 81
    """The group has as many members as `group.max.size` or its counterpart permits."""
    FENCED_INSTANCE_ID = 82
    """Another member has joined with the same `group.instance.id` and has replaced this one."""
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    """No replica that may lead is online."""
    ELECTION_NOT_NEEDED = 84
    """The partition has the leader that the election would choose."""
    NO_REASSIGNMENT_IN_PROGRESS = 85
    """The partition has no reassignment that could be cancelled."""
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    """Members of the group subscribe to the topic."""
    INVALID_RECORD = 87
    """A record fails validation, such as one without a key in a compacted topic."""
    UNSTABLE_OFFSET_COMMIT = 88
    """The partition has offsets of a transaction that is not complete: retry."""
    THROTTLING_QUOTA_EXCEEDED = 89
    """A quota is exceeded: retry after the throttle time."""
    PRODUCER_FENCED = 90
    """A newer producer uses the same transactional id."""
    RESOURCE_NOT_FOUND = 91
    """A resource that the request names does not exist, such as a SCRAM user."""
    DUPLICATE_RESOURCE = 92
    """The request names a resource twice."""
    UNACCEPTABLE_CREDENTIAL = 93
    """The SCRAM credential is invalid, for example its number of iterations."""
    INCONSISTENT_VOTER_SET = 94
    """The sender is no voter, or has another set of voters."""
    INVALID_UPDATE_VERSION = 95
    """The version of the update is invalid, such as an outdated partition epoch."""
    FEATURE_UPDATE_FAILED = 96
    """A feature cannot be changed to this level."""
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    """The principal in an Envelope cannot be read."""
    SNAPSHOT_NOT_FOUND = 98
    """The snapshot does not exist, or was deleted."""
    POSITION_OUT_OF_RANGE = 99
    """The position is outside the snapshot."""
    UNKNOWN_TOPIC_ID = 100
    """No topic has this id."""
    DUPLICATE_BROKER_REGISTRATION = 101
    """Another process that is alive is registered with the node id."""
    BROKER_ID_NOT_REGISTERED = 102
    """No broker of this id is registered."""
    INCONSISTENT_TOPIC_ID = 103
    """The topic id in the log differs from that of the request."""
    INCONSISTENT_CLUSTER_ID = 104
    """The node belongs to another cluster."""
    TRANSACTIONAL_ID_NOT_FOUND = 105
    """The coordinator does not know the transactional id."""
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    """The request uses topic ids and its fetch session names, or the reverse."""
    INELIGIBLE_REPLICA = 107
    """A replica may not enter the ISR, because its broker is fenced or shutting down."""
    NEW_LEADER_ELECTED = 108
    """The change of the ISR was made, and it elected another leader."""
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    """The offset is in remote storage only."""
    FENCED_MEMBER_EPOCH = 110
    """The member epoch is not the current one: join again with epoch 0."""
    UNRELEASED_INSTANCE_ID = 111
    """The `group.instance.id` belongs to a member that has not left."""
    UNSUPPORTED_ASSIGNOR = 112
    """The group coordinator does not have this assignor."""
    STALE_MEMBER_EPOCH = 113
    """The member epoch is older than the current one: heartbeat again, then retry."""
    MISMATCHED_ENDPOINT_TYPE = 114
    """The request was sent to a listener of the other type, broker or controller."""
    UNSUPPORTED_ENDPOINT_TYPE = 115
    """The endpoint type of the request is neither broker (1) nor controller (2)."""
    UNKNOWN_CONTROLLER_ID = 116
    """No controller of this id is known."""
    UNKNOWN_SUBSCRIPTION_ID = 117
    """The telemetry subscription has changed: send GetTelemetrySubscriptions."""
    TELEMETRY_TOO_LARGE = 118
    """The metrics are larger than `telemetry.max.bytes`."""
    INVALID_REGISTRATION = 119
    """The registration is invalid, for example its endpoints or features."""
    TRANSACTION_ABORTABLE = 120
    """The transaction can only be aborted."""
    INVALID_RECORD_STATE = 121
    """The record is not acquired by this member, for example because its lock has expired."""
    SHARE_SESSION_NOT_FOUND = 122
    """The broker has no such share session."""
    INVALID_SHARE_SESSION_EPOCH = 123
    """The request is not the next one of its share session."""
    FENCED_STATE_EPOCH = 124
    """The state epoch of the share-partition is not the current one."""
    INVALID_VOTER_KEY = 125
    """The request is addressed to another voter: node id or directory id differ."""
    DUPLICATE_VOTER = 126
    """The controller is a voter already."""
    VOTER_NOT_FOUND = 127
    """The quorum has no such voter."""
    INVALID_REGULAR_EXPRESSION = 128
    """The regular expression of a subscription is not valid in RE2 syntax."""
    REBOOTSTRAP_REQUIRED = 129
    """The client knows another cluster: bootstrap again."""
    STREAMS_INVALID_TOPOLOGY = 130
    """The topology of the application has an invalid topic name, partition count or subtopology."""
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    """The topology epoch is not one that the group can take over."""
    STREAMS_TOPOLOGY_FENCED = 132
    """The topology epoch is older than that of the group."""
    SHARE_SESSION_LIMIT_REACHED = 133
    """The broker has as many share sessions as `group.share.max.share.sessions` permits."""

    @classmethod
    def _missing_(cls, value: object) -> ErrorCode:
        """Return UNKNOWN_SERVER_ERROR for a number without a code, sent by a newer peer (``Errors.forCode``)."""
        return cls.UNKNOWN_SERVER_ERROR

    @property
    def retriable(self) -> bool:
        """True if a client may retry the request (``RetriableException``)."""
        return self in _RETRIABLE

    @property
    def text(self) -> str:
        """Error message for clients: Kafka's own if responses contain it, else the name of the code as a sentence."""
        return _TEXTS.get(self) or self.name.replace("_", " ").capitalize() + "."


_TEXTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Messages are rejected since there are fewer in-sync replicas than required.",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "Messages are written to the log, but to fewer in-sync replicas than required."
    ),
    ErrorCode.ILLEGAL_GENERATION: "Specified group generation id is not valid.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The coordinator is not aware of this member.",
    ErrorCode.REBALANCE_IN_PROGRESS: "The group is rebalancing, so a rejoin is needed.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "The broker received an out of order sequence number.",
    ErrorCode.PRODUCER_FENCED: "There is a newer producer with the same transactionalId which fences the current one.",
    ErrorCode.INVALID_REQUEST: (
        "This most likely occurs because of a request being malformed by the client library or the message was sent "
        "to an incompatible broker. See the broker logs for more details."
    ),
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.FENCED_LEADER_EPOCH: "The leader epoch in the request is older than the epoch on the broker.",
    ErrorCode.FENCED_STATE_EPOCH: (
        "The share coordinator rejected the request because the share-group state epoch did not match."
    ),
}
_RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)


class ProtocolError(Exception):
    """Error code of a response, with an optional message, as an exception.

    Raised in a node, it becomes the error code of the response; raised in our client, it reports one that a node sent.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        """Error code of the response."""
        self.message = message
        """Text that the response has beside the code, if any."""
