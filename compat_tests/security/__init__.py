"""Tests of logins, ACLs and quotas with stock clients, and comparisons with Kafka."""
