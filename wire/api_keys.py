"""API keys of the Kafka protocol, and the request and response class of each API.

Keys 4 to 7 were removed in Apache Kafka 4.0. Source: ``ApiKeys.java`` and the request schemas (apache/kafka 4.3.1).
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache, lru_cache
from importlib import import_module
from typing import TypeVar

from ottla.wire.codec.interpreter import spec_of
from ottla.wire.codec.schema import Message, MessageSpec


class ApiKey(IntEnum):
    """API key: the first two bytes of a request header (``request_api_key``)."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92

    __hash__ = int.__hash__  # Enum's hash is computed in Python, and each request is looked up by its key

    @property
    def api_name(self) -> str:
        """Name of the API in Kafka's spelling: ``DescribeTopicPartitions``."""
        return "".join(word.capitalize() for word in self.name.split("_"))


M = TypeVar("M", bound=Message)


def _classes(key: ApiKey) -> tuple[type[Message], type[Message]]:
    # lazy: 28.6 ms, 1671 kB: all of them; a node needs few
    module = import_module(f"ottla.wire.messages.{key.name.lower()}")
    return getattr(module, key.api_name + "Request"), getattr(module, key.api_name + "Response")


@cache
def request_class(key: ApiKey) -> type[Message]:
    """Return the message class of an API's request; its module is imported on first use."""
    return _classes(key)[0]


@cache
def response_class(key: ApiKey) -> type[Message]:
    """Return the message class of an API's response; its module is imported on first use."""
    return _classes(key)[1]


@cache
def request_spec(key: ApiKey) -> MessageSpec:
    """Return the `MessageSpec` of an API's request: versions, flexible versions and listeners."""
    return spec_of(request_class(key))


def request_header_version(key: ApiKey, version: int) -> int:
    """Return the version of the request header: 2 (with tagged fields) for flexible versions, else 1."""
    return 2 if version in request_spec(key).flexible else 1


@lru_cache(1024)
def response_header_version(key: ApiKey, version: int) -> int:
    """Return the version of the response header: 1 (with tagged fields) for flexible versions, else 0.

    ApiVersions always has 0, so that any client can read it (KIP-511).
    """
    if key is ApiKey.API_VERSIONS:
        return 0
    return 1 if version in request_spec(key).flexible else 0
