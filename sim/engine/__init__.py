"""Simulated hosts, processes, threads, network, clocks and object store, all determined by the seed."""
