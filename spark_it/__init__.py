"""PySpark as an unmodified client: integration tests, pipelines, and the build of the data source ``ottla-log``."""
