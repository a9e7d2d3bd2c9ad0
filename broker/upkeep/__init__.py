"""Work in the background: syncing, checkpoints, retention, compaction, scrubbing."""
