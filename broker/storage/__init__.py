"""Log directories, their failures, and the background work on their logs."""
