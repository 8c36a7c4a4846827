"""Several processes on one GPU at the same time, by NVIDIA's Multi-Process Service (MPS) where it can be had."""

from asrnorm.sharing.service import TURNS as TURNS
from asrnorm.sharing.service import VARIABLE as VARIABLE
from asrnorm.sharing.service import Sharing as Sharing
from asrnorm.sharing.service import share_gpus as share_gpus
from asrnorm.sharing.service import visible_gpu as visible_gpu
