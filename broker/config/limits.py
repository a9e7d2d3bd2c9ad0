"""Limits of the memory and time that one client, or one request, may cost a broker.

The unit of a limit is the end of its name (a count otherwise). Its docstring states what is limited, the reason where
that is not obvious, and what happens beyond it. Names in braces are replaced by their numbers.
`docs/reference/limits.md` is generated from here.
"""

from __future__ import annotations

# ------------------------------------------------------------------ before authentication

AUTHENTICATION_TIMEOUT_MS = 30_000.0
"""The TLS handshake and the SASL authentication of a connection together.

Beyond: the connection is closed, at most {MAX_IDLE_CHECK_S} later. Kafka waits for `connections.max.idle.ms`.
"""
MAX_IDLE_CHECK_S = 10.0
"""Time between two checks for idle and unauthenticated connections."""
MAX_PRE_AUTH_BYTES = 16 * 1024 * 1024
"""Buffers of all unauthenticated connections of a listener, beyond {UNCOUNTED_PRE_AUTH_BYTES} each.

Beyond: the connection that needs more is closed, with a warning in the log.
"""
UNCOUNTED_PRE_AUTH_BYTES = 8 * 1024
"""Buffer of an unauthenticated connection that does not count towards the limit of its listener."""
MAX_INVALID_UTF8_BYTES = 32 * 1024
"""A PLAIN message that is not valid UTF-8.

Decoding half a mebibyte of one takes the event loop 50 ms, before authentication.

Beyond: the message is rejected, and the authentication fails.
"""
MAX_OAUTHBEARER_MESSAGE_BYTES = 32 * 1024
"""An OAUTHBEARER message, with the token in it; parsing half a mebibyte would hold the event loop.

Beyond: the message is rejected, and the authentication fails.
"""
MIN_JWKS_REFRESH_INTERVAL_S = 1.0
"""Fetches of the JWKS because a token names an unknown key; {MIN_UNKNOWN_KEY_INTERVAL_MS} for the same key id.

Any client may name unknown keys.

Beyond: the fetch is delayed, and the token is rejected. Kafka has no such limit.
"""
MIN_UNKNOWN_KEY_INTERVAL_MS = 60_000.0
"""Time between two fetches of the JWKS because of one key id."""
MAX_SOFTWARE_CHARS = 1000
"""The name, and the version, of the client software.

ApiVersions is answered before authentication, and the names are kept with the connection.

Beyond: ApiVersions returns INVALID_REQUEST.
"""
MAX_LOG_LINES_PER_MINUTE = 30
"""Log lines about invalid requests and failed connections of a listener.

Beyond: the others are counted, and a later line has their number.
"""
MAX_AUDIT_LINES_PER_MINUTE = 1_000
"""Different lines of the audit log (`ottla.audit.log`), half of them of allowed operations.

Beyond: the others are counted. A line is logged once a minute with the number of its repetitions; of a name,
{MAX_AUDIT_NAME_CHARS} are logged.
"""
MAX_AUDIT_NAME_CHARS = 255
"""A resource name in a line of the audit log; the rest is omitted."""

# ------------------------------------------------------------------ connections and quotas

MAX_CONNECTION_THROTTLE_MS = 1000
"""Delay of a new connection while the connection rate is exceeded: one sample of the rate."""
MIN_REAUTHENTICATION_INTERVAL_MS = 1000.0
"""Time between two authentications of a connection."""
MAX_QUOTA_COUNTERS = 20_000
"""Clients counted under quotas of one kind.

A client chooses its client id.

Beyond: the counter that was unused for longest is dropped, and that client is counted from zero. Of a client id,
{MAX_QUOTA_CLIENT_ID_CHARS} count.
"""
MAX_QUOTA_CLIENT_ID_CHARS = 255
"""A client id in the key of a quota counter; the rest is ignored."""

# ------------------------------------------------------------------ records

MAX_CONCURRENT_DECOMPRESSIONS = 2
"""Batches of more than {wire.record_batch.compression.FREE_BYTES bytes} that Produce and ListOffsets decompress at a
time.

A zstd window takes up to 128 MiB, and a snappy block is decompressed as a whole.

Beyond: the other requests wait and keep their memory; smaller batches do not wait.
"""
MAX_RECORD_ERRORS_PER_RESPONSE = 10_000
"""Invalid records that one Produce response lists."""

# ------------------------------------------------------------------ metadata

MAX_DESCRIBED_PARTITIONS = 2000
"""Partitions in a DescribeTopicPartitions response.

Beyond: the response has a cursor for the next request; `max.request.partition.size.limit` has no effect.
"""
MAX_TOPICS_IN_CREATION = 1_000
"""Topics that are being created because their metadata was requested.

A Metadata request may name hundreds of thousands of topics that do not exist.

Beyond: no further one is created: the response has UNKNOWN_TOPIC_OR_PARTITION, and the client retries.
"""
MAX_RENEWERS = 1_000
"""Renewers of a delegation token, with {MAX_RENEWER_CHARS} in their names.

They are one record, which each node reads at once and keeps in memory.

Beyond: RECORD_LIST_TOO_LARGE; in Kafka the record may have {controller.limits.MAX_METADATA_BATCH_BYTES}.
"""
MAX_RENEWER_CHARS = 1024 * 1024
"""Names of all renewers of a delegation token: a metadata batch has 8 MiB, and a character up to four bytes."""

# ------------------------------------------------------------------ groups

MAX_PENDING_MEMBER_ID_CHARS = 4 << 20
"""Member ids given to new members of classic groups (MEMBER_ID_REQUIRED) that have not joined with them yet, of all
groups of a partition of `__consumer_offsets`; {MAX_GROUP_PENDING_MEMBER_ID_CHARS} of one group, and each counts
{PENDING_MEMBER_ID_OVERHEAD_CHARS count} more.

Beyond: the oldest is dropped: its member gets UNKNOWN_MEMBER_ID, and joins again. Kafka keeps all of them.
"""
MAX_GROUP_PENDING_MEMBER_ID_CHARS = 1 << 20
"""Pending member ids of one classic group."""
PENDING_MEMBER_ID_OVERHEAD_CHARS = 512
"""Memory of a pending member id besides its characters, above all its timer."""
MAX_JOIN_GROUP_PROTOCOLS = 1_000
"""Protocols (assignors) of a member of a classic group.

Each is compared with those of all members in one step of the event loop.

Beyond: INCONSISTENT_GROUP_PROTOCOL. Kafka has no limit.
"""
MAX_SYNC_GROUP_ASSIGNMENTS = 100_000
"""Assignments in a SyncGroup request.

A group record cannot hold more members: Kafka fails to write it.

Beyond: UNKNOWN_SERVER_ERROR. Kafka ignores those of members that the group does not have.
"""
MAX_PATTERN_BYTES = 1 << 17
"""A compiled regular expression, of a consumer group member or in ListTransactions.

The memory bounds the time to match a name as well.

Beyond: INVALID_REGULAR_EXPRESSION. The expressions of a group are matched with the topics again after
{MIN_REGEX_REFRESH_INTERVAL_MS time} at the earliest.
"""
MIN_REGEX_REFRESH_INTERVAL_MS = 10_000
"""Time between two matches of the regular expressions of a consumer group with all topics."""
MAX_TOPOLOGY_WEIGHT = 10_000
"""A streams topology: each topic counts {TOPOLOGY_TOPIC_WEIGHT}, each setting and each entry of a copartition group 1.

Beyond: STREAMS_INVALID_TOPOLOGY.
"""
TOPOLOGY_TOPIC_WEIGHT = 5
"""Weight of a topic in a streams topology; a setting or an entry of a copartition group has the weight 1."""
MAX_STREAMS_TASKS = 20_000
"""Tasks of a streams topology.

The assignor visits each of them several times.

Beyond: STREAMS_INVALID_TOPOLOGY; a heartbeat with twice as many tasks, or client tags, gets INVALID_REQUEST.
"""

# ------------------------------------------------------------------ share groups

MAX_SHARE_MEMBER_ID_CHARS = 36
"""The member id of a member of a share group.

Beyond: INVALID_REQUEST.
"""
MAX_CACHED_SHARE_PARTITIONS = 500_000
"""Partitions of all share sessions together; Kafka counts sessions only."""
MAX_SHARE_SESSION_PARTITIONS = 10_000
"""Partitions of one share session.

A session is opened and changed in one step of the event loop.

Beyond: SHARE_SESSION_LIMIT_REACHED, as for too many sessions.
"""
MAX_SHARE_BATCH_CUTS = 10_000
"""Boundaries in the in-flight batches of a share partition where the delivery state of adjacent records differs.

As many states can be stored at once, and a batch may claim any number of records.

Beyond: INVALID_REQUEST for the acknowledgement. The number of records in a batch is not limited.
"""
MAX_WRITTEN_SHARE_BATCHES = 10_000
"""State batches of a partition in WriteShareGroupState, {MAX_STORED_SHARE_BATCHES} with those that are stored.

``group.share.partition.max.record.locks`` has the same maximum.

Beyond: INVALID_REQUEST.
"""
MAX_STORED_SHARE_BATCHES = 3 * MAX_WRITTEN_SHARE_BATCHES
"""Stored state batches of a share partition: few more than its records in flight."""

# ------------------------------------------------------------------ fetch sessions and remote reads

MIN_FETCH_SESSION_EVICTION_MS = 120_000
"""Time without a fetch after which a fetch session may be evicted for another one."""
MAX_FETCH_SESSION_PARTITIONS = 10_000
"""Partitions of a consumer's fetch session, {MAX_CACHED_FETCH_PARTITIONS} of all consumers' together.

Beyond: no session is created; one that grows beyond it ends (FETCH_SESSION_ID_NOT_FOUND). Sessions of brokers with the
right CLUSTER_ACTION have no such bound.
"""
MAX_CACHED_FETCH_PARTITIONS = 500_000
"""Partitions of all fetch sessions of consumers, some 250 bytes each."""

MAX_RELEASED_CHUNKS = 512
"""Files of the chunk cache that only slow responses keep open, or as many as `chunk.cache.max.bytes` allows.

Beyond: a read of remote records returns {CROWDED_READ_BYTES} at most, or one batch, from memory.
"""
CROWDED_READ_BYTES = 64 * 1024
"""Records of a partition that a read returns in memory while too many files of the chunk cache are in responses."""

# ------------------------------------------------------------------ client telemetry and metrics

MAX_METRIC_FIELDS = 500
"""Fields of a pushed metric value with its attributes: it is decoded in one step of the event loop."""
MAX_CLIENT_METRICS_INSTANCES = 16_384
"""Client instances that push metrics, or request their subscription.

Beyond: the instance that was silent for longest is dropped.
"""
MAX_CLIENT_METRICS_TOTAL_BYTES = 4 * 1024 * 1024
"""Pushed values that are kept for the metrics page, {MAX_CLIENT_METRICS_CLIENT_BYTES} of one client.

Beyond: new ones are dropped and counted (`ottla_telemetry_values_dropped_total`).
"""
MAX_CLIENT_METRICS_CLIENT_BYTES = 512 * 1024
"""Pushed values of one client that are kept for the metrics page."""
MAX_HTTP_CONNECTIONS = 32
"""Connections to the HTTP listener (`ottla.metrics.listener`).

Beyond: the one without a request for longest is closed; while all have a request under way, the oldest.
"""
HTTP_TIMEOUT_S = 10.0
"""A request to the HTTP listener (`ottla.metrics.listener`) and its response.

Beyond: the connection is closed; connections there do not count towards `max.connections`.
"""
MAX_HTTP_HEAD_BYTES = 8192
"""The request line and header fields of a request to the HTTP listener.

Beyond: the response is 431; of the rest, {MAX_HTTP_DISCARDED_BYTES} are received.
"""
MAX_HTTP_DISCARDED_BYTES = 1024 * 1024
"""Rest of an HTTP request that is received after its response, for {HTTP_LINGER_S} s at most: else it could be lost."""
HTTP_LINGER_S = 1.0
"""Time after an HTTP response in which the rest of a request is received.

Beyond: the connection is closed.
"""
MAX_FAULT_REQUEST_BYTES = 64 * 1024
"""Body of a request to the listener for faults (`ottla.faults.listener`).

Beyond: the response is 413.
"""
MAX_HTTP_FORM_FIELDS = 200
"""Fields of a form or query of an HTTP request.

Beyond: the form or query is treated as empty.
"""
MAX_CONSOLE_CONNECTIONS = 64
"""Connections to the web console (`ottla.console.listener`), but for event streams.

Beyond: the one without a request for longest is closed, or the new one while all have a request under way.
"""
MAX_CONSOLE_STREAMS = 32
"""Event streams of the web console.

Beyond: the response is 503; the page has its values as of when it was loaded.
"""
MAX_CONSOLE_SESSIONS = 1_000
"""Sessions of the web console that are logged in.

Beyond: the oldest session is closed.
"""
CONSOLE_SESSION_MS = 8 * 60 * 60 * 1000
"""Lifetime of a session of the web console.

Beyond: the session is closed.
"""
MAX_CONSOLE_BODY_BYTES = 2 * 1024 * 1024
"""Body of a request to the web console: a form, or a record to append.

Beyond: the response is 413.
"""
MAX_CONSOLE_LOGIN_BYTES = 64 * 1024
"""Body of a login to the web console.

Beyond: the response is 413.
"""
MAX_CONSOLE_LOGINS = 4
"""Logins to the web console at a time: each takes some milliseconds of a thread.

Beyond: further logins wait.
"""
MAX_CONSOLE_SCAN_BYTES = 32 * 1024 * 1024
"""Batches that a page of records of the web console reads, and keys and values that it keeps.

Beyond: the page has the records found so far, and a link to continue.
"""
MAX_CONSOLE_SCAN_MS = 5_000
"""Time that a page of records of the web console takes.

Beyond: the page has the records found so far, and a link to continue.
"""
MAX_CONSOLE_BATCH_BYTES = 8 * 1024 * 1024
"""Records of a compressed batch that the web console decompresses.

Beyond: the page names the batch instead of showing its records.
"""
MAX_TRACED_REQUESTS = 2_048
"""Spans of traced requests that a node keeps until their export.

Beyond: the oldest is dropped and counted in a log message.
"""
MAX_TRACED_CLIENT_ID_CHARS = 255
"""Client id in a span of a traced request.

Beyond: it is cut.
"""
MAX_CONSOLE_FRAMES = 30
"""Requests of a connection or an API that a capture of the web console keeps.

Beyond: the oldest is dropped; of requests that come faster than the page is updated, the first 30, then 5, are kept.
"""
MAX_CONSOLE_CAPTURES = 4
"""Captures of frames that the web console keeps.

Beyond: the oldest capture ends and its frames are dropped.
"""
MAX_CONSOLE_GROUPS = 1_000
"""Groups that the web console follows.

Beyond: the page of a further group has no timeline.
"""
MAX_CONSOLE_CHANGES = 500
"""Changes of the metadata that the web console keeps.

Beyond: the oldest is dropped.
"""
MAX_CONSOLE_REBALANCES = 50
"""Rebalances of a group in the timeline of the web console.

Beyond: the oldest is dropped.
"""
MAX_CONSOLE_REBALANCE_MEMBERS = 20
"""Members that joined, or left, with a rebalance in the timeline of the web console.

Beyond: further members are counted only.
"""
MAX_CONSOLE_FRAME_BYTES = 64 * 1024
"""A request or a response that a capture of the web console keeps.

Beyond: the page has its size only.
"""
MAX_CONSOLE_SCHEMA_BYTES = 4 * 1024 * 1024
"""Schemas that the web console keeps, of files and of a registry each; each counts as 4 KiB at least.

Beyond: the ones that were not used for longest are loaded again when they are needed.
"""
MAX_CONSOLE_SCHEMA_LOOKUPS = 20
"""Schemas that a page of records of the web console requests from the schema registry.

Beyond: the keys and values of further schemas are shown as bytes.
"""
CONSOLE_TIMEOUT_S = 20.0
"""A request to the web console and its response.

Beyond: the connection is closed.
"""
MAX_METRICS_PARTITIONS = 10_000
"""Replicas of a node with series of their own on the metrics page.

Beyond: they are counted in `ottla_metrics_omitted_partitions`, and in all sums.
"""
MAX_METRICS_TOPICS = 2_000
"""Topics of a node with series of their own traffic on the metrics page.

Beyond: their traffic is in the series without topic.
"""
MAX_METRICS_GROUP_OFFSETS = 20_000
"""Committed offsets with series of their own on the metrics page; groups with one for their members.

Beyond: whole groups are left out, and their offsets are counted in `ottla_metrics_omitted_group_offsets`.
"""
