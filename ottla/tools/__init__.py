"""What the command line does with files and frames: dump, verify, doctor, trace."""
