"""PySpark as an unmodified client: integration tests, and the pipeline of `make run`."""
