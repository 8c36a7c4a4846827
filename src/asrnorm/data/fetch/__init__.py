"""Getting public data sets, and verifying what lies there."""
