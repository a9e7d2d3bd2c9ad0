"""Tools behind the command line: dump, verify, doctor, trace."""
