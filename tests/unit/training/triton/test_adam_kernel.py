from helpers.interpreter import interpret


def test_the_kernel_is_adam_to_rounding():
    squares, means, parameters = map(float, interpret("interpreted_adam").split())
    assert squares < 3e-6
    assert means < 1e-6
    assert parameters < 2e-5
