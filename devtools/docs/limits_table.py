"""Sections of the page of limits: the order of its rows, and the rows of settings."""

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
Nothing but ApiVersions, SaslHandshake and SaslAuthenticate is decoded on a listener that asks for a login.

sasl.server.max.receive.size bytes | a frame before the login is complete, and while somebody logs in again | the
connection ends, and the log says so. A frame takes memory only as its bytes arrive

broker.config.limits.AUTHENTICATION_TIMEOUT_MS

broker.config.limits.MAX_PRE_AUTH_BYTES

ottla.runtime.tls_stream._HANDSHAKE_LOCK turns | the steps of TLS handshakes, of all that come in | the others wait;
everybody who is connected gets a turn in between

connection.failed.authentication.delay.ms time | how long a failed login is held | it is answered then, and the
connection ends

broker.config.limits.MAX_INVALID_UTF8_BYTES

client.scram.MAX_MESSAGE_BYTES bytes | a message of SCRAM | counts as none: the login fails

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
max.connections count | connections, of all listeners for clients together and of each one | who comes then waits,
unread, until another one leaves. The brokers' own listener lets its own in all the same: then who has been silent for
longest elsewhere is hung up on

max.connections.per.ip count | connections from one address; `max.connections.per.ip.overrides` names other numbers |
who comes then is hung up on

max.connection.creation.rate count | new connections in a second, of all listeners together and of each one | each waits
until the rate is back at it, {broker.config.limits.MAX_CONNECTION_THROTTLE_MS} at most. Who is over a quota of its
address (`connection_creation_rate`) waits as long, unread, and is hung up on

connections.max.idle.ms time | how long a connection may ask nothing, or read nothing of its answer | it is hung up on;
a negative number is no limit

connections.max.reauth.ms endless | how long a login counts; a token may end before | the connection ends with its next
request, unless that begins to log in again; {broker.config.limits.MIN_REAUTHENTICATION_INTERVAL_MS} may, sooner it is
ILLEGAL_SASL_STATE

broker.network.connection._KEPT_BUFFER_BYTES bytes | the buffer a connection keeps between its requests | a larger one
is let go once all in it is answered, and the next one begins with {broker.network.connection._FIRST_BUFFER_BYTES bytes}

jobs.time_slice.SLICE_MS time | how long a connection's requests, or one of them that has many rows, have the loop |
others get their turn, then it goes on

broker.config.limits.MAX_QUOTA_COUNTERS
"""

REQUESTS = """\
socket.request.max.bytes bytes | a request | the connection ends, and the log says so. A request takes memory only as
its bytes arrive

wire.limits.MAX_STRING_BYTES

wire.limits.MAX_UNKNOWN_TAGS

wire.limits.BUDGET_FREE_BYTES

wire.limits.BUDGET_FREE_RETAINED_BYTES

message.max.bytes bytes | a batch of records, of which a request has one for each partition; a topic's own
`max.message.bytes` | MESSAGE_TOO_LARGE. So it is for a batch that is packed anew, as soon as it has grown so large

log.log_validator.PIECE_BYTES bytes | what is unpacked at a time of a batch whose records are looked at before they are
taken | others get their turn before the next piece, and nothing of it is kept but what is packed anew

wire.limits.MAX_DECOMPRESSED_BYTES

wire.record_batch.records.PIECE_BYTES bytes | what is kept unpacked at a time of a batch in which ListOffsets by time
looks | others get their turn before the next piece

wire.record_batch.compression.MAX_COMPRESSION_RATIOS packed | what compressed records may unpack to, by gzip, snappy,
lz4 and zstd, as far as the number of records goes that a batch says it has | INVALID_RECORD for more than would fit
then. Kafka, which goes through all records of a batch, counts them

broker.config.limits.MAX_CONCURRENT_DECOMPRESSIONS

wire.limits.SNAPPY_MAX_RATIO

log.limits.MAX_RECORD_ERRORS_PER_BATCH

fetch.max.bytes bytes | records in the answer to a fetch | less is sent; the first batch is, whatever its size. A share
fetch divides it among its partitions

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

offset.metadata.max.bytes chars | the note beside a committed position | OFFSET_METADATA_TOO_LARGE for that partition

broker.config.limits.MAX_PATTERN_BYTES

broker.config.limits.MAX_TOPOLOGY_WEIGHT

broker.config.limits.MAX_STREAMS_TASKS

broker.config.limits.MAX_SHARE_MEMBER_ID_CHARS

group.share.max.share.sessions count | sessions of share fetches, with
{broker.config.limits.MAX_CACHED_SHARE_PARTITIONS} partitions in all of them | SHARE_SESSION_LIMIT_REACHED, which
whoever asks is told once its `max_wait_ms` is over. Kafka counts sessions alone

broker.config.limits.MAX_SHARE_SESSION_PARTITIONS

group.share.partition.max.record.locks count | records of a partition that a share group has in flight; its own
`share.partition.max.record.locks` | no new ones are handed out until the first are done with. Whole record batches are
handed out, the last one beyond it

broker.config.limits.MAX_SHARE_BATCH_CUTS

broker.config.limits.MAX_WRITTEN_SHARE_BATCHES

transaction.max.timeout.ms time | the time a producer may want for a transaction | INVALID_TRANSACTION_TIMEOUT. A
transaction that is open for longer than it wanted is aborted

max.incremental.fetch.session.cache.slots count | fetch sessions | the one that is idle for longest gives way if nobody
used it for {broker.config.limits.MIN_FETCH_SESSION_EVICTION_MS}, and a reader's to a follower in any case; else the
fetch is answered without a session

broker.config.limits.MAX_FETCH_SESSION_PARTITIONS

broker.config.limits.MAX_RENEWERS

telemetry.max.bytes bytes | metrics a client pushes at once, packed and unpacked | TELEMETRY_TOO_LARGE; INVALID_RECORD
where they only unpack to more, or a value has more than {broker.config.limits.MAX_METRIC_FIELDS} fields

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
    "Before somebody has logged in": BEFORE_LOGIN,
    "Connections": CONNECTIONS,
    "A request": REQUESTS,
    "Topics, settings, access rules": METADATA,
    "Groups, transactions, and what is remembered of clients": GROUPS,
}
