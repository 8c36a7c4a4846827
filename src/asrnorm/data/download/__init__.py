"""Downloading public data sets, and verifying the files in the data folder.

`obtain.obtain` downloads a set by name, `obtain.obtain_from_archive` installs a file downloaded by hand, `verify.check`
verifies. `catalog.CATALOG` lists files, checksums and sources of every set.
"""
