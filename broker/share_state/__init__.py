"""Share coordinator (KIP-932) and its log `__share_group_state`: persisted delivery state of share partitions."""
