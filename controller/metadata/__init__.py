"""The metadata image, what changes it, and the snapshots it is kept in."""
