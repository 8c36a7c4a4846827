"""Domains generated from the contents of wheels on PyPI: no download, and the same images every time."""

from asrnorm.data.synthetic.digits_mini import build_digits_mini as build_digits_mini
from asrnorm.data.synthetic.digits_mini import build_mnist_m as build_mnist_m
from asrnorm.data.synthetic.digits_mini import build_syn_like as build_syn_like
