"""Parts of a training step as GPU kernels: modules that import Triton at the top, imported only where they are used."""
