"""The layer in Triton kernels. Importing a module of this folder imports Triton; `asrnorm.norms.dispatch` does it late.

`moment.py` and `apply.py` are the passes over activations, `network.py` and `network_back.py` the four small networks
for all samples, `sample.py` and `sample_back.py` everything at once for one sample a program, `resident.py` activations
that the first of them holds in registers, `weight.py` the gradients of the parameters. `launch.py` has the block
sizes, `layer.py` the order of launches, `moments_rescale.py` the two halves apart for other norms, `switchable.py` what
one of them does between the two, and `autograd.py` what PyTorch is told of it. `convolve.py` and `pool.py` are no part
of the layer: the ConvNet's convolutions and its pooling.
"""
