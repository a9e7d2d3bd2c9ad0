"""Simulated hosts, processes, threads, disks, network and clock, all a function of the seed."""
