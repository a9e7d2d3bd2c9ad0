"""Share partitions (KIP-932) at their leader: acquisition, acknowledgement, share sessions and group settings."""
