"""The recipes of CIFAR-10-C have the numbers of the paper."""

import pytest

from asrnorm.recipes import recipe


@pytest.mark.parametrize("name", ["cifar10c.erm_bn", "cifar10c.erm_asr", "cifar10c.ada_asr", "cifar10c.ada_sn_in_ln"])
def test_cifar_is_the_papers(name):
    config = recipe(name)
    optim = config.optim
    assert config.model.name == "wrn_40_4"
    assert (config.steps, config.batch_size, config.augment) == (78_200, 128, "cifar")
    assert (optim.name, optim.lr, optim.momentum, optim.nesterov) == ("sgd", 0.1, 0.9, True)
    assert (optim.weight_decay, optim.decay_lambdas, optim.schedule) == (5e-4, True, "cosine")
    if config.method.name == "ada":
        args = config.method.args
        assert (args["rounds"], args["interval"], args["ascent_steps"], args["penalty"]) == (3, 1000, 25, 1.0)
        assert args["growth"] == "source"


def test_bn_test_on_cifar_is_evaluated_in_batches_of_16():
    assert recipe("cifar10c.ada_bn_test").evaluate_batch == 16
    assert recipe("cifar10c.ada_bn").evaluate_batch == 500
