"""KRaft controller: metadata quorum (Raft), records of ``__cluster_metadata``, metadata image, request handling."""
