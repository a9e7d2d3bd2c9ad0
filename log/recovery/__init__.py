"""Loading, recovery and verification of logs on disk: log loader, segment split, scrubbing, dry run."""
