"""Tests of log directories and tiered storage beside Kafka."""
