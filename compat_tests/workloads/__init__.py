"""Workload generator beside Kafka: draws a workload by seed, runs it on Ottla and on Kafka, and compares both.

``python -m compat_tests.workloads --seed 7`` runs one seed, ``--seeds 1-200 --resume FILE`` the campaign.
"""
