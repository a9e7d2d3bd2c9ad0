"""The deterministic simulator: the same node code in virtual time, from one seed."""
