"""Classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""
