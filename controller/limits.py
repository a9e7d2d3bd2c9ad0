"""Limits of the size of requests to the controller; beyond each, the request or a part of it gets an error.

The docstrings have the form of `ottla.broker.config.limits`: `docs/reference/limits.md` is generated from them.
"""

from __future__ import annotations

MAX_PARTITIONS_PER_REQUEST = 10_000
"""Partitions of all topics of a CreateTopics request.

Beyond: POLICY_VIOLATION for all of it.
"""
MAX_RECORDS_PER_REQUEST = 10_000
"""Metadata records from one CreateTopics, CreatePartitions, AlterConfigs, IncrementalAlterConfigs, ElectLeaders,
AlterClientQuotas or AlterUserScramCredentials request.

Beyond: POLICY_VIOLATION for all of it; in Kafka UNKNOWN_SERVER_ERROR of the last one. DeleteTopics and
AlterPartitionReassignments apply as many changes as fit, and return UNKNOWN_SERVER_ERROR for the rest, as Kafka does.
"""
MAX_METADATA_BATCH_BYTES = 8 * 1024 * 1024
"""Names and values of settings in one CreateTopics, AlterConfigs or IncrementalAlterConfigs request; names in
AlterClientQuotas; names and salts in AlterUserScramCredentials.

It is the maximum size of a batch of the metadata log (``KafkaRaftClient.MAX_BATCH_SIZE_BYTES``).

Beyond: RECORD_LIST_TOO_LARGE for all of it.
"""
MAX_REGISTRATION_ITEMS = 1_000
"""Listeners, features or log directories in the registration of a node.

A registration is one record, which each node reads in one step of the event loop.

Beyond: INVALID_REGISTRATION. Kafka has no limit.
"""
MAX_QUORUM_REQUEST_ITEMS = 1_000
"""Endpoints or candidates in an AddRaftVoter, UpdateRaftVoter, BeginQuorumEpoch or EndQuorumEpoch request.

These requests are handled in one step of the event loop.

Beyond: INVALID_REQUEST. Kafka has no limit.
"""
MAX_QUOTA_ENTITY_PARTS = 20
"""Components of an entity, and quota keys, in an entry of AlterClientQuotas: there are three kinds, and five keys.

Beyond: INVALID_REQUEST for that entry. Kafka has no such limit.
"""
MAX_TOPIC_NAME_CHARS = 249
"""A topic name.

Beyond: INVALID_TOPIC_EXCEPTION.
"""
MAX_CONFIG_VALUE_BYTES = 32767
"""The value of a setting, including appended list elements.

Beyond: INVALID_CONFIG.
"""
MAX_CLIENT_METRICS_MATCH_CHARS = 1024
"""The patterns (`match`) of a client-metrics subscription.

A pattern of 32 KiB takes a tenth of a second to check.

Beyond: INVALID_CONFIG. Kafka has no such limit.
"""
MAX_SCRAM_FIELD_BYTES = 1024
"""The salt, and the salted password, of a user's SCRAM credential.

The salt is sent to each client that starts to authenticate as the user.

Beyond: AlterUserScramCredentials returns UNACCEPTABLE_CREDENTIAL.
"""
MAX_ACLS_PER_REQUEST = 10_000
"""ACLs that a request creates or deletes.

Kafka's bound of the records of a request (``QuorumController.MAX_RECORDS_PER_USER_OP``).

Beyond: CreateAcls returns POLICY_VIOLATION, DeleteAcls INVALID_REQUEST, without changes.
"""
MAX_REPEATED_ACL_CHARS = 8 * 1024 * 1024
"""Names in the rows of a DeleteAcls response for ACLs that another filter has matched already;
{REPEATED_ACL_ROW_CHARS} more for each row.

Beyond: INVALID_REQUEST, without changes. Kafka has no such limit.
"""
REPEATED_ACL_ROW_CHARS = 64
"""Characters counted for a row of an already matched ACL besides its names, for its memory."""
