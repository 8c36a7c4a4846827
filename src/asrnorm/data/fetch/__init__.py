"""Getting public data sets, and verifying what lies there.

`obtain.obtain` fetches a set by name, `obtain.obtain_from_archive` places a file downloaded by hand, `check.check`
verifies; `catalog.CATALOG` says what is known of each set.
"""
