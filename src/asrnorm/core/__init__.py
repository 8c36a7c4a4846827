"""What every package uses: configs and their hash, the registry, errors, files, results and settings of the machine."""
