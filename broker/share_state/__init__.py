"""Share coordinator (KIP-932) with its log `__share_group_state`, and the persister, its client on every broker."""
