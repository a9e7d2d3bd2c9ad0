"""Workload generator for comparisons with Kafka: draws a workload by seed, runs it on both brokers, compares both.

``python -m compat_tests.workloads --seed 7`` runs one seed, ``--seeds 1-200 --resume FILE`` the campaign.
"""
