"""Simulated hosts, processes, threads, disks, network and clock, all determined by the seed."""
