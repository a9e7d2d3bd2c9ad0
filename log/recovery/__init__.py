"""Opening and checking logs on disk: log loader, segment split, scrub, dry run."""
