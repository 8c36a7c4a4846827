"""Triton kernels. Its modules import Triton at the top, so functions import them when they are called.

`asr_forward.py` and `asr_backward.py` hold the kernels of ASR-Norm, `autograd.py` the order of their launches and the
PyTorch operator, `flat_params.py` its parameters, `launch.py` block sizes and options, and `compiled.py` the way past
Triton's launcher. `moments_rescale.py` has the two halves of a layer as operators for the other norms, `grouped.py`
group and switchable normalization. `convolve.py`, `pool.py` and `adam.py` serve the digits ConvNet; `rsda.py`,
`pacs_augment.py` and `pixels.py` augment images. `cpu.py` is ASR-Norm in eager calls on a CPU and needs no Triton.
`asrnorm.norms.dispatch` decides what they compute.
"""
