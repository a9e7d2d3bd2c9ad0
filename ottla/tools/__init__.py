"""Functions behind the command line and the embedded broker: dump, verification, doctor, trace, join, faults."""
