"""Log directories, their failures, background work on their logs (cleaner, scrubber), and tiered storage."""
