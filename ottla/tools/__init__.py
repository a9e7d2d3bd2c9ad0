"""Tools behind the command line, the console and embedded nodes, such as dump, doctor, trace, faults, test client."""
