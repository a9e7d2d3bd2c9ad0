"""What ``ottla group`` tells of groups, and how it changes their offsets."""
