"""Tests of the simulator with faults of disks, log directories and requests."""
