"""Sections of the page of limits ``docs/reference/limits.md``: the order of its rows, and the texts of settings."""

from __future__ import annotations

# A row is the name of a constant of a limits module, whose docstring is its text; or, for a setting or a constant of
# another package: names and form of the number, what is bounded, and what happens beyond it. Names in braces stand for
# their numbers.
INTRO = """\
This page lists what bounds the cost that one client or one request can cause for a node, and what happens beyond each
bound. Where the last column names a setting, the number is its default ([settings](config.md)); the other numbers are
fixed and defined in the module that the column names. Rates are not limited until a
[quota](../how-to/secure.md#quotas-and-connection-limits) is set. Most bounds apply to one request or one connection;
`max.connections` limits the number of connections, and is not set by default. [Limitations](limitations.md) lists
differences from Kafka that are not listed here.
"""

BEFORE_LOGIN = """\
Only ApiVersions, SaslHandshake and SaslAuthenticate are decoded on a listener that requires authentication.

sasl.server.max.receive.size bytes | a frame before the authentication is complete, and during a re-authentication | the
connection is closed, and a message is logged. A frame takes memory only as its bytes arrive

broker.config.limits.AUTHENTICATION_TIMEOUT_MS

broker.config.limits.MAX_PRE_AUTH_BYTES

ottla.runtime.tls_stream._HANDSHAKE_LOCK turns | steps of the TLS handshakes of all connections | the other steps wait;
requests are served in between

connection.failed.authentication.delay.ms time | delay of the response to a failed authentication | the response is sent
then, and the connection is closed

broker.config.limits.MAX_INVALID_UTF8_BYTES

client.scram.MAX_MESSAGE_BYTES bytes | a message of SCRAM | the authentication fails

controller.limits.MAX_SCRAM_FIELD_BYTES

broker.config.limits.MAX_OAUTHBEARER_MESSAGE_BYTES

broker.config.limits.MIN_JWKS_REFRESH_INTERVAL_S

broker.config.limits.MAX_SOFTWARE_CHARS

broker.config.limits.MAX_LOG_LINES_PER_MINUTE

broker.config.limits.MAX_AUDIT_LINES_PER_MINUTE

env.log_escaping.LONGEST_CHARS chars | a value in a log line | the rest is cut off; control and format characters are
escaped
"""

CONNECTIONS = """\
max.connections count | connections, of all listeners for clients together and of each one | a further connection is not
read until another one is closed. The inter-broker listener accepts further ones nevertheless: then the connection of
another listener that was idle for longest is closed

max.connections.per.ip count | connections from one address; `max.connections.per.ip.overrides` names other numbers | a
further connection is closed

max.connection.creation.rate count | new connections in a second, of all listeners together and of each one | each waits
until the rate is back at the limit, {broker.config.limits.MAX_CONNECTION_THROTTLE_MS} at most. A connection above the
quota of its address (`connection_creation_rate`) waits as long, is not read, and is closed

connections.max.idle.ms time | time in which a connection sends no request, or reads nothing of a response | it is
closed; a negative number is no limit

connections.max.reauth.ms endless | validity of an authentication; a token may expire earlier | the connection is closed
at its next request, unless that begins a re-authentication; {broker.config.limits.MIN_REAUTHENTICATION_INTERVAL_MS} is
possible, an earlier one gets ILLEGAL_SASL_STATE

broker.network.connection._KEPT_BUFFER_BYTES bytes | the receive buffer that a connection keeps between requests | a
larger one is released when its requests are served, and the next one begins with
{broker.network.connection._FIRST_BUFFER_BYTES bytes}

jobs.time_slice.SLICE_MS time | time for which the requests of a connection, or one request with many rows, run on the
event loop | other tasks run, then they continue

broker.config.limits.MAX_QUOTA_COUNTERS
"""

REQUESTS = """\
socket.request.max.bytes bytes | a request | the connection is closed, and a message is logged. A request takes memory
only as its bytes arrive

wire.limits.MAX_STRING_BYTES

wire.limits.MAX_UNKNOWN_TAGS

wire.limits.BUDGET_FREE_BYTES

wire.limits.BUDGET_FREE_RETAINED_BYTES

message.max.bytes bytes | a record batch, of which a request has one for each partition; `max.message.bytes` of a topic
takes precedence | MESSAGE_TOO_LARGE, also for a batch that is compressed anew, as soon as it has become that large

log.log_validator.PIECE_BYTES bytes | uncompressed bytes at a time of a batch whose records are validated before the
append | other tasks run before the next piece, and only what is compressed anew stays in memory

wire.limits.MAX_DECOMPRESSED_BYTES

wire.record_batch.records.PIECE_BYTES bytes | uncompressed bytes at a time of a batch in which ListOffsets searches by
timestamp | other tasks run before the next piece

wire.record_batch.compression.MAX_COMPRESSION_RATIOS packed | assumed size of uncompressed records, by gzip, snappy, lz4
and zstd, with which the record count of a batch header is compared | INVALID_RECORD for more records than fit into it.
Kafka decompresses all batches and counts the records

broker.config.limits.MAX_CONCURRENT_DECOMPRESSIONS

wire.limits.SNAPPY_MAX_RATIO

log.limits.MAX_RECORD_ERRORS_PER_BATCH

fetch.max.bytes bytes | records in the response to Fetch | fewer are sent; the first batch is sent, whatever its size.
ShareFetch divides it among its partitions

broker.config.limits.MAX_DESCRIBED_PARTITIONS
"""

METADATA = """\
controller.limits.MAX_PARTITIONS_PER_REQUEST

controller.limits.MAX_RECORDS_PER_REQUEST

controller.limits.MAX_METADATA_BATCH_BYTES

controller.limits.MAX_REGISTRATION_ITEMS

controller.limits.MAX_QUORUM_REQUEST_ITEMS

controller.limits.MAX_QUOTA_ENTITY_PARTS

controller.limits.MAX_TOPIC_NAME_CHARS

controller.limits.MAX_CONFIG_VALUE_BYTES

controller.limits.MAX_CLIENT_METRICS_MATCH_CHARS

controller.limits.MAX_ACLS_PER_REQUEST

controller.limits.MAX_REPEATED_ACL_CHARS

broker.config.limits.MAX_TOPICS_IN_CREATION
"""

GROUPS = """\
group.max.size, group.consumer.max.size, group.streams.max.size count | members of a group of the classic, the consumer
and the streams protocol | GROUP_MAX_SIZE_REACHED

broker.config.limits.MAX_PENDING_MEMBER_ID_CHARS

broker.config.limits.MAX_JOIN_GROUP_PROTOCOLS

broker.config.limits.MAX_SYNC_GROUP_ASSIGNMENTS

group.share.max.size count | members of a share group | GROUP_MAX_SIZE_REACHED

offset.metadata.max.bytes chars | the metadata of a committed offset | OFFSET_METADATA_TOO_LARGE for that partition

broker.config.limits.MAX_PATTERN_BYTES

broker.config.limits.MAX_TOPOLOGY_WEIGHT

broker.config.limits.MAX_STREAMS_TASKS

broker.config.limits.MAX_SHARE_MEMBER_ID_CHARS

group.share.max.share.sessions count | share sessions, with
{broker.config.limits.MAX_CACHED_SHARE_PARTITIONS} partitions in all of them | SHARE_SESSION_LIMIT_REACHED, which is
returned after `max_wait_ms`. Kafka counts sessions only

broker.config.limits.MAX_SHARE_SESSION_PARTITIONS

group.share.partition.max.record.locks count | records of a partition that a share group has in flight;
`share.partition.max.record.locks` of a group takes precedence | no further records are acquired until the first ones
are acknowledged. Whole record batches are acquired, the last one beyond the limit

broker.config.limits.MAX_SHARE_BATCH_CUTS

broker.config.limits.MAX_WRITTEN_SHARE_BATCHES

transaction.max.timeout.ms time | the transaction timeout that a producer requests | INVALID_TRANSACTION_TIMEOUT. A
transaction that is open for longer than its timeout is aborted

max.incremental.fetch.session.cache.slots count | fetch sessions | the session that was idle for longest is evicted if
it was not used for {broker.config.limits.MIN_FETCH_SESSION_EVICTION_MS}, and a consumer's session for a follower's in
any case; else the response has no session

broker.config.limits.MAX_FETCH_SESSION_PARTITIONS

broker.config.limits.MAX_RELEASED_CHUNKS

broker.config.limits.MAX_RENEWERS

telemetry.max.bytes bytes | metrics that a client pushes at once, compressed and uncompressed | TELEMETRY_TOO_LARGE;
INVALID_RECORD if only the uncompressed metrics are larger, or a value has more than
{broker.config.limits.MAX_METRIC_FIELDS} fields

broker.config.limits.MAX_CLIENT_METRICS_INSTANCES

broker.config.limits.MAX_CLIENT_METRICS_TOTAL_BYTES

broker.config.limits.MAX_HTTP_CONNECTIONS

broker.config.limits.HTTP_TIMEOUT_S

broker.config.limits.HTTP_LINGER_S

broker.config.limits.MAX_HTTP_HEAD_BYTES

broker.config.limits.MAX_HTTP_FORM_FIELDS

broker.config.limits.MAX_CONSOLE_CONNECTIONS

broker.config.limits.MAX_CONSOLE_STREAMS

broker.config.limits.MAX_CONSOLE_SESSIONS

broker.config.limits.CONSOLE_SESSION_MS

broker.config.limits.CONSOLE_TIMEOUT_S

broker.config.limits.MAX_CONSOLE_BODY_BYTES

broker.config.limits.MAX_CONSOLE_LOGIN_BYTES

broker.config.limits.MAX_CONSOLE_LOGINS

broker.config.limits.MAX_CONSOLE_SCAN_BYTES

broker.config.limits.MAX_CONSOLE_SCAN_MS

broker.config.limits.MAX_CONSOLE_BATCH_BYTES

broker.config.limits.MAX_TRACED_REQUESTS

broker.config.limits.MAX_TRACED_CLIENT_ID_CHARS

broker.config.limits.MAX_CONSOLE_FRAMES

broker.config.limits.MAX_CONSOLE_FRAME_BYTES

broker.config.limits.MAX_CONSOLE_CAPTURES

broker.config.limits.MAX_CONSOLE_GROUPS

broker.config.limits.MAX_CONSOLE_REBALANCES

broker.config.limits.MAX_CONSOLE_REBALANCE_MEMBERS

broker.config.limits.MAX_CONSOLE_CHANGES

broker.config.limits.MAX_CONSOLE_SCHEMA_BYTES

broker.config.limits.MAX_CONSOLE_SCHEMA_LOOKUPS

broker.config.limits.MAX_FAULT_REQUEST_BYTES

broker.config.limits.MAX_METRICS_PARTITIONS

broker.config.limits.MAX_METRICS_TOPICS

broker.config.limits.MAX_METRICS_GROUP_OFFSETS
"""

SECTIONS = {
    "Before authentication": BEFORE_LOGIN,
    "Connections": CONNECTIONS,
    "A request": REQUESTS,
    "Topics, settings, access rules": METADATA,
    "Groups, transactions, and state of clients": GROUPS,
}
