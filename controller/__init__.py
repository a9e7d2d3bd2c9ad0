"""The metadata quorum: Kafka's `__cluster_metadata` records, the image made of them, and the rules behind them."""
