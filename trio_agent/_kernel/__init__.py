"""The kernel: all concurrency of a run, and nothing that knows a vendor, a schema or a database."""
