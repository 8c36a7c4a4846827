"""The suites, one per file."""
