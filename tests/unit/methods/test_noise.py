import torch

from asrnorm.methods.randomness import uniform_noise


def test_the_numbers_are_those_of_splitmix64():
    # The first outputs of the published generator for the seed 1234567, of which the upper 53 bits are taken.
    words = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    found = uniform_noise(torch.tensor(1234567), (4,), dtype=torch.float64)
    assert found.tolist() == [(word >> 11) / 2**53 for word in words]


def test_the_numbers_fill_the_unit_interval_evenly():
    for dtype in (torch.float32, torch.float64):
        noise = uniform_noise(torch.tensor(5), (100_000,), dtype=dtype)
        assert 0 <= float(noise.min()) < 1e-3
        assert 1 - 1e-3 < float(noise.max()) < 1
        counts = torch.histc(noise.float(), 20, 0, 1)
        assert float((counts - 5_000).abs().max()) < 5 * 70
        assert abs(float((noise[1:] * noise[:-1]).mean()) - 0.25) < 5e-3


def test_keys_give_streams_of_their_own():
    one, other = (uniform_noise(torch.tensor(key), (1000,)) for key in (3, 4))
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.15


def test_a_part_is_the_same_part_of_the_whole():
    whole = uniform_noise(torch.tensor(9), (6, 2, 3))
    assert torch.equal(uniform_noise(torch.tensor(9), (2, 2, 3), start=3 * 6), whole[3:5])
