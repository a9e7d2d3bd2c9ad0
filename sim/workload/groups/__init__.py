"""Members of consumer, share and streams groups in a simulated run: workload, faults and verification."""
