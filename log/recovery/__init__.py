"""Creation, loading, recovery and verification of logs on disk, with completion of interrupted segment swaps."""
