"""Data directories, their failures, and the work on closed segments: cleaning, scrubbing, removal."""
